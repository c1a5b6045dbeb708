"""What `headtail inspect` tells and draws of a model."""
