"""Why a way wins, and what would have to change for another to win."""
