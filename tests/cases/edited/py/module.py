from pack.inner import K


def f(x):
    return K * x
