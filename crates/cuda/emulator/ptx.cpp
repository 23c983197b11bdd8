// What of the instructions is long.
#include "ptx.h"

#include <vector>

namespace emulator {
namespace {
const float* all_halves() {
    static std::vector<float> values(65536);
    for (unsigned h = 0; h < values.size(); h++) {
        const int exponent = h >> 10 & 31, fraction = h & 1023;
        const float size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
        values[h] = h >> 15 ? -size : size;
    }
    return values.data();
}
}
const float* const halves = all_halves();

// d[16 x 8] += a[16 x 16] b[16 x 8]. Lane 4 g + t holds rows g and g + 8 of a and d, and column g of b; of the inner numbers 2 t, 2 t + 1 and those 8 further on,
// of d's columns 2 t and 2 t + 1.
void product_together(void* const* of, unsigned lanes) {
    if (lanes != ~0u) fail("a matrix instruction of a warp that is not complete");
    float a[16][16], b[16][8], d[16][8];
    for (int l = 0; l < 32; l++) {
        const Product& p = *(const Product*)of[l];
        const int g = l / 4, t = l % 4 * 2;
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < 2; e++) a[g + r % 2 * 8][t + r / 2 * 8 + e] = half_value((uint16_t)(p.a[r] >> 16 * e));
        for (int r = 0; r < 2; r++)
            for (int e = 0; e < 2; e++) b[t + r * 8 + e][g] = half_value((uint16_t)(p.b[r] >> 16 * e));
        for (int e = 0; e < 4; e++) d[g + e / 2 * 8][t + e % 2] = p.d[e];
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) ((Product*)of[l])->d[e] = d[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2];
}
}
