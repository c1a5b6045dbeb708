"""Routes for a grid of conditions, and what they lose to the best plan under each."""
