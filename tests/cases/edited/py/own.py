K = 2


def f(x):
    return K * x
