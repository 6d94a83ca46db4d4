"""What folders of runs hold."""

# of a run that went to its end
FINISHED = [".lock", "cell.json", "final.pt", "metrics.jsonl", "model.json", "record.json"]


def names(folder):
    """Names of all files; commands leave a lock file of their own beside that of the worker."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".command.lock")
