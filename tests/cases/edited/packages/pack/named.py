import numpy
from .part import K


def f(x):
    return K * x
