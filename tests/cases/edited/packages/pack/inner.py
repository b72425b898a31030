from .leaf import K
