"""Keep networks able to learn: resets, shrink and perturb, decay; metrics of units."""
