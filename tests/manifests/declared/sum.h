#define SUM(x, y) ((x) + (y))
