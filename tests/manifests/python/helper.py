"""A module beside the main file."""


def twice(x):
    return x * 2
