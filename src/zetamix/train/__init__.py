"""Training: recipes, a step that a GPU can hold whole, runs that survive anything."""

from zetamix.train.paper_recipes import RECIPES as RECIPES
from zetamix.train.paper_recipes import recipe_for as recipe_for
from zetamix.train.paper_recipes import recipe_of as recipe_of
from zetamix.train.recipe import Recipe as Recipe
from zetamix.train.recipe import RecipeError as RecipeError
from zetamix.train.run import Progress as Progress
from zetamix.train.run import Run as Run
from zetamix.train.run import make_cell as make_cell
from zetamix.train.run_folder import load_model as load_model
from zetamix.train.side_by_side import train as train
