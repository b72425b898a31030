#define K 2
