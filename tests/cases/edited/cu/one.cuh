#include <two.h>
