from own import SIGN

K = float(open("ROOT/outside/right.txt").read())


def f(x):
    return SIGN * K * x
