import math; import second


def f(x):
    return second.K * x
