def right(x)
    return x
