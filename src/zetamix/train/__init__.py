"""Training: recipes, runs that resume exactly after any interruption, and their models."""

from zetamix.train.concurrent_runs import train as train
from zetamix.train.paper_recipes import RECIPES as RECIPES
from zetamix.train.paper_recipes import default_recipe as default_recipe
from zetamix.train.paper_recipes import make_recipe as make_recipe
from zetamix.train.recipe import Recipe as Recipe
from zetamix.train.recipe import RecipeError as RecipeError
from zetamix.train.run import Progress as Progress
from zetamix.train.run import Run as Run
from zetamix.train.run import make_cell as make_cell
from zetamix.train.run_folder import load_model as load_model
