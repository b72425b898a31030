exec(open("ROOT/outside/code.txt").read())


def f(x):
    return K * x
