import numpy as np


def f(x):
    return np.tanh(x) / (1 + np.exp(-x)) + x
