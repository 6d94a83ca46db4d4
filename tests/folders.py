"""What folders of runs hold."""

# of a run that went to its end
FINISHED = [".lock", "cell.json", "final.pt", "metrics.jsonl", "model.json", "record.json"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())
