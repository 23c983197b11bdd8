// How the solve of one sample goes.
#pragma once
#include "common.cuh"

enum Outcome { RUNNING, CONVERGED, STEP_LIMIT, NOT_FINITE };

struct Progress {          // all zeros at the start
    double smallest;       // |r| at the best iterate
    float relative;        // the same relative to |f|
    int steps, best;       // evaluations so far; the best one's number
    int outcome, usable;   // changes that may be used
    short task, saved;     // what anderson_mix is to do; whether the best is in best_z and best_image
};
