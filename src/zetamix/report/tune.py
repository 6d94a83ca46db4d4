"""A search as files: one page, a JSON, tables, and every figure as SVG and PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zetamix.atomic_io import json_safe, write_json, write_text
from zetamix.experiments.tune.final import CHOSEN, Evaluated, differences
from zetamix.experiments.tune.plan import KEEP_PERCENT, STARTUP
from zetamix.experiments.tune.question import HELD_OUT
from zetamix.experiments.tune.run import Tuning
from zetamix.metrics import METRICS
from zetamix.report import Cell, Column, Picture, Section, Table, render_page
from zetamix.report.page import Block
from zetamix.report.tune_figures import draw_gamma, draw_importance, measure_name
from zetamix.report.tune_parallel import draw_parallel
from zetamix.report.tune_plain import results_csv, told_metrics, trials_csv
from zetamix.report.tune_text import read
from zetamix.results.search_space import TITLES, format_setting
from zetamix.results.tuning import Trial, all_tie
from zetamix.results.tuning_analysis import curve, flatness, has_seeds, importance, trend

SCHEMA = "zetamix/tune/1"
# a page with more trials than this shows the best; trials.csv has all
SHOWN_TRIALS = 30


def write_report(tuning: Tuning, out: Path, facts: Mapping[str, str]) -> Path:
    """Write `report.html`, `results.json`, tables and `figures/`; the path of the page.

    facts: the machine, from `zetamix.provenance.machine_info`.
    """
    shares = importance(tuning.trials, tuning.question.space.searched, tuning.question.seed)
    pictures = draw_all(tuning, shares)
    for picture in pictures.values():
        picture.save(out / "figures")
    write_text(out / "trials.csv", trials_csv(tuning))
    if tuning.tested:
        table = results_table(tuning)
        write_text(out / "results.csv", results_csv(tuning))
        write_text(out / "results.md", table.markdown() + "\n")
        write_text(out / "results.tex", table.latex() + "\n")
    write_json(out / "results.json", json_safe({"machine": dict(facts), **as_dict(tuning, shares)}))
    page = out / "report.html"
    write_text(page, _page(tuning, pictures, shares, facts))
    return page


def as_dict(tuning: Tuning, shares: Mapping[str, float] | str) -> dict[str, Any]:
    """Everything that the page says, for programs."""
    chosen, metric = tuning.chosen, tuning.question.metric
    flat = flatness(tuning.trials, metric)
    points = curve(tuning.trials) if has_seeds(tuning.trials) else trend(tuning.trials)
    return {
        "schema": SCHEMA,
        "question": tuning.question.as_dict(),
        "notes": list(tuning.question.dataset.notes),
        "sampler": tuning.sampler,
        "pruned": tuning.prune,
        "asked_for": tuning.total,
        "finished": tuning.finished,
        "reading": dict(read(tuning)),
        "chosen": None
        if chosen is None
        else {"setting": chosen.setting, "value": chosen.value, "n": chosen.n},
        "flatness": None if flat is None else dict(vars(flat)),
        "importance": dict(shares) if not isinstance(shares, str) else None,
        "curve": [dict(vars(point)) for point in points],
        "trials": [trial.as_dict() for trial in tuning.trials],
        "test": [_tested_dict(each) for each in tuning.tested],
        "differences": [
            {"reference": d.reference, **d.estimate.as_dict(), "low": d.low, "high": d.high}
            for d in (differences(tuning.tested, metric) if tuning.tested else ())
        ],
    }


def _tested_dict(tested: Evaluated) -> dict[str, Any]:
    return {
        "name": tested.contender.name,
        "method": tested.contender.method,
        "recipe": tested.contender.recipe.as_dict(),
        "records": [record.as_dict() for record in tested.records],
    }


def draw_all(tuning: Tuning, shares: Mapping[str, float] | str) -> dict[str, Picture]:
    """Every figure that there are numbers for, by name."""
    question, chosen = tuning.question, tuning.chosen
    searched = question.space.searched
    pictures: list[Picture] = []
    if chosen is not None and "gamma" in chosen.setting:
        gamma = question.space.gamma
        # where nothing is chosen, a tie has no best γ to point at
        pointless = question.judge == "test" and all_tie(tuning.trials)
        pictures.append(
            draw_gamma(
                tuning.trials,
                question.metric,
                split=question.judge,
                chosen=None if pointless else chosen.setting,
                span=None if gamma is None else gamma.span,
            )
        )
    if chosen is not None and len(searched) > 1:
        pictures.append(
            draw_parallel(tuning.trials, searched, question.metric, split=question.judge)
        )
    if not isinstance(shares, str):
        pictures.append(draw_importance(shares))
    return {picture.name: picture for picture in pictures}


def results_table(tuning: Tuning) -> Table:
    """What was chosen, beside no mixing and the default γ, on the test split."""
    metric = tuning.question.metric
    metrics = told_metrics(metric)
    rows: list[list[Cell | str | int | float | None]] = []
    for tested in tuning.tested:
        contender = tested.contender
        name = f"chosen: {contender.method}" if contender.name == CHOSEN else contender.method
        cells: list[Cell] = []
        for each in metrics:
            found = tested.estimate(each)
            shown = METRICS[each]
            value, spread = shown.scale(found.value), shown.scale(found.spread)
            cells.append(Cell(value, error=spread, digits=shown.digits))
        rows.append([name, *cells, len(tested.records)])
    columns = [Column("method"), *(_column(name) for name in metrics), Column("seeds")]
    changed = _changed(tuning)
    notes = [
        "Mean ± standard deviation over seeds that no trial has had, after the last epoch. All "
        "were trained on the training split alone, without the validation split."
    ]
    if changed:
        notes.append(f"Chosen with {changed}; the others keep the recipe as it is.")
    return Table(columns, rows, f"{tuning.question.dataset.name}, test split", notes)


def _column(metric: str) -> Column:
    shown = METRICS[metric]
    better = "higher" if shown.higher_is_better else "lower"
    return Column(shown.heading, f"{shown.title}; {better} is better")


def _changed(tuning: Tuning) -> str:
    chosen = tuning.chosen
    if chosen is None:
        return ""
    recipe = tuning.question.recipe.as_dict()
    return format_setting({name: value for name, value in chosen.setting.items() if name in recipe})


def trial_table(trials: Sequence[Trial], tuning: Tuning) -> Table:
    """Finished trials with their settings, the best first."""
    question = tuning.question
    sign = 1 if question.lower_is_better else -1
    done = [t for t in trials if t.state == "complete" and t.value is not None]
    shown = sorted(done, key=lambda t: (sign * (t.value or 0.0), t.number))[:SHOWN_TRIALS]
    names = [each.name for each in question.space.parameters]
    rows: list[list[Cell | str | int | float | None]] = []
    for trial in shown:
        value = None if trial.value is None else METRICS[question.metric].scale(trial.value)
        error = None if trial.error is None else METRICS[question.metric].scale(trial.error)
        settings = [trial.setting.get(name) for name in names]
        row: list[Cell | str | int | float | None] = [Cell(trial.number), *settings, trial.seed]
        row += [Cell(value, error=error, digits=METRICS[question.metric].digits)]
        rows.append([*row, trial.state, Cell(trial.seconds, digits=1)])
    columns = [
        Column("trial"),
        *(Column(TITLES.get(name, name)) for name in names),
        Column("seed"),
        Column(measure_name(question.metric, question.judge), "± standard error, of the samples"),
        Column("state"),
        Column("seconds"),
    ]
    some = f"{len(shown)} finished trials" if all_tie(trials) else f"The best {len(shown)} trials"
    caption = "All trials" if len(shown) == len(trials) else some
    return Table(columns, rows, caption)


def _page(
    tuning: Tuning,
    pictures: Mapping[str, Picture],
    shares: Mapping[str, float] | str,
    facts: Mapping[str, str],
) -> str:
    sections: list[Section] = []
    if tuning.tested:
        sections.append(Section("On the test split", [results_table(tuning)]))
    if "gamma" in pictures:
        sections.append(Section("Against γ", [pictures["gamma"]]))
    if "parallel" in pictures:
        sections.append(Section("All parameters together", [pictures["parallel"]]))
    if len(tuning.question.space.searched) > 1:
        block: Block = shares if isinstance(shares, str) else pictures["importance"]
        sections.append(Section("What mattered", [block]))
    rest = len(tuning.trials) - SHOWN_TRIALS
    more = [f"{rest} more are in trials.csv."] if rest > 0 else []
    sections.append(Section("Trials", [trial_table(tuning.trials, tuning), *more]))
    sections.append(Section("How it was done", _method(tuning)))
    title = f"{tuning.question.dataset.name}: which γ?"
    if not tuning.finished:
        title += " (unfinished)"
    return render_page(title, sections, machine=facts, lead=read(tuning))


def _method(tuning: Tuning) -> list[str]:
    question, dataset = tuning.question, tuning.question.dataset
    words = [_splits(tuning), _sampling(tuning)]
    recipe = question.recipe
    words.append(
        f"Recipe: {recipe.source}; {recipe.model}, {recipe.epochs} epochs, batches of "
        f"{recipe.batch_size}, learning rate {recipe.lr:g} ({recipe.schedule}), weight decay "
        f"{recipe.weight_decay:g}, augmentation {recipe.augmentation}. Searched: "
        f"{question.space.text}. Trained by {tuning.where}."
    )
    return words + [f"About the data: {note}." for note in dataset.notes]


def _splits(tuning: Tuning) -> str:
    question, dataset = tuning.question, tuning.question.dataset
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    if question.judge == "test":
        return (
            f"Every model was trained on {sizes['train']:,} samples and measured on the "
            f"{sizes['test']:,} of the test split, as in the paper's analysis. It shows how "
            "sensitive the result is; to choose by it would spoil the test split."
        )
    origin = f"{100 * HELD_OUT:.0f} % of the training split, held out" if question.held_out else ""
    text = (
        f"Every model was trained on {sizes['train']:,} samples and judged by "
        f"{METRICS[question.metric].title} on the {sizes['val']:,} of the validation split"
        f"{f' ({origin})' if origin else ''}, after its last epoch."
    )
    if "test" not in sizes:
        return f"{text} There is no test split to try the chosen setting on."
    return (
        f"{text} The {sizes['test']:,} samples of the test split are not read before the setting "
        "is chosen."
    )


def _sampling(tuning: Tuning) -> str:
    if tuning.sampler == "grid":
        seeds = sorted({trial.seed for trial in tuning.trials})
        word = "seed" if len(seeds) == 1 else "seeds"
        return f"Every place of the grid was trained with {word} {', '.join(map(str, seeds))}."
    how = {
        "tpe": "by Optuna's tree-structured Parzen estimator, the first ten at random",
        "random": "at random",
    }[tuning.sampler]
    text = f"Settings were drawn {how}, from seed {tuning.question.seed}; trial n trains with "
    text += f"seed {tuning.question.seed} + n." if tuning.question.seed else "seed n."
    if tuning.prune:
        text += (
            f" From a third of its epochs on, a trial was stopped where {KEEP_PERCENT:.0f} % of "
            f"the finished ones had been better at the same epoch, once {STARTUP} were finished."
        )
    return text
