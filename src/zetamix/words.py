"""Words that everything which talks to people shares."""


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "class", "classes"), counted(1200, "image")
    ('1 class', '1,200 images')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
