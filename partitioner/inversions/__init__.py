"""How well the input of a model can be rebuilt from what crosses a cut."""
