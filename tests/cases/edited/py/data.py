import os
import numpy as np

K = np.loadtxt(os.path.join(os.path.dirname(__file__), "factor.txt"), dtype=np.float32)


def f(x):
    with open(os.path.join(os.path.dirname(__file__), "log.txt"), "a") as log:
        log.write("called\n")
    return K * x
