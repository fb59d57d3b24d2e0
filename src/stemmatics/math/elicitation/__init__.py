"""Items answered under several recipes by several checkpoints: components, order of recipes, ceilings."""
