"""How much a policy of routes gives away: link traces replayed under it, under fixed routes, and under an oracle."""
