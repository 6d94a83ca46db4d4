"""Training: recipes, runs that resume exactly after any interruption, and their models."""

from zetamix_lab.train.recipe import Recipe as Recipe
from zetamix_lab.train.recipe import RecipeError as RecipeError
from zetamix_lab.train.recipe import default_recipe as default_recipe
from zetamix_lab.train.recipe import make_recipe as make_recipe
from zetamix_lab.train.run import Run as Run
from zetamix_lab.train.run import make_cell as make_cell
from zetamix_lab.train.run import train as train
from zetamix_lab.train.run_folder import load_model as load_model
