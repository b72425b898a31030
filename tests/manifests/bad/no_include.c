#include "nothing.h"
