// What can be measured of a run, and which measures make a figure.
import { height, last_of, points_in, points_of } from "./columns.js";
import { bytes, number, percent, seconds } from "./format.js";

const of_rounds = (name) => ({ rounds }) => points_in(rounds, name);
const of_evaluations = (name) => ({ evaluations }) => points_in(evaluations, name);
const of_timings = (name) => ({ timings }) => points_in(timings, name);
/** The shared model or, where nothing is shared, the only one. */
const shared_or_own = (name) => ({ evaluations }) => points_in(evaluations, `${evaluations.shared ? "shared" : "local"}${name}`);
const not_zero = (measure) => (story) => measure(story).filter(([, y]) => y !== 0);

/** Every measure gives points `[round, value]` of a story. */
export const MEASURES = {
  local: { name: "own model", of: of_evaluations("local") },
  shared: { name: "shared model", of: of_evaluations("shared") },
  shared_or_own: { name: "shared model", of: shared_or_own("") },
  local_worst: { name: "worst tenth, own models", of: of_evaluations("local_worst") },
  shared_worst: { name: "worst tenth, shared", of: of_evaluations("shared_worst") },
  shared_or_own_worst: { name: "worst tenth, shared", of: shared_or_own("_worst") },
  local_loss: { name: "test, own models", of: of_evaluations("local_loss") },
  shared_loss: { name: "test, shared", of: of_evaluations("shared_loss") },
  train_loss: { name: "training", of: of_rounds("loss") },
  cohort_gap: { name: "clients of the round", of: of_rounds("gap") },
  gap: { name: "all clients", of: of_evaluations("gap") },
  dual: { name: "dual", of: not_zero(of_evaluations("dual_norm")) },
  lagrangian: { name: "Lagrangian", of: of_evaluations("lagrangian") },
  stationarity: { name: "stationarity", of: of_evaluations("stationarity") },
  head_gradient: { name: "gradient of the heads", of: of_evaluations("head_gradient") },
  epsilon: { name: "epsilon", of: of_rounds("epsilon") },
  steps: { name: "steps", of: of_rounds("steps") },
  residual: { name: "residual", of: of_rounds("residual") },
  unconverged: { name: "not converged", of: of_rounds("unconverged") },
  warm: { name: "started warm", of: of_rounds("warm") },
  norm: { name: "median", of: not_zero(of_rounds("norm")) },
  norm_largest: { name: "largest", of: not_zero(of_rounds("norm_largest")) },
  bound: { name: "bound", of: of_rounds("bound") },
  distance: { name: "median", of: not_zero(of_rounds("distance")) },
  distance_largest: { name: "largest", of: not_zero(of_rounds("distance_largest")) },
  outliers: { name: "outliers", of: of_rounds("outliers") },
  clipped: { name: "clipped", of: of_rounds("clipped") },
  left_out: { name: "left out", of: of_rounds("left_out") },
  up: { name: "to the server", of: of_rounds("up") },
  down: { name: "to clients", of: of_rounds("down") },
  sent: { name: "both ways", of: (story) => points_of(story.rounds, (at) => at("up") + at("down")) },
  memory: { name: "whole process", of: of_timings("memory") },
  client_memory: { name: "one client's training", of: of_timings("client_memory") },
  gpu_memory: { name: "allocated", of: of_timings("gpu_memory") },
  gpu_peak: { name: "peak", of: of_timings("gpu_peak") },
  gpu_work: { name: "utilisation", of: of_timings("gpu_work") },
  train: { name: "training", of: of_timings("train") },
  evaluate: { name: "evaluation", of: of_timings("evaluate") },
};

/** Shares are between 0 and 1, and so are bands around them. */
const share = { format: percent, zero: true, floor: 0, ceiling: 1 };
const amount = { format: number, zero: true, floor: 0 };

/** The figures of one run. */
export const FIGURES = [
  { title: "Accuracy", measures: ["local", "shared", "local_worst", "shared_worst"], ...share, most: 1 },
  { title: "Loss", measures: ["train_loss", "local_loss", "shared_loss"], ...amount },
  { title: "Consensus gap", note: "mean of ‖θᵢ − θ‖", measures: ["cohort_gap", "gap"], ...amount },
  { title: "Dual norm", note: "mean of ‖λᵢ‖", measures: ["dual"], ...amount },
  { title: "Augmented Lagrangian", note: "sum over clients", measures: ["lagrangian"], format: number },
  { title: "Stationarity", note: "gradients", measures: ["stationarity", "head_gradient"], format: number, log: true },
  { title: "Privacy spent", note: "epsilon, all rounds so far", measures: ["epsilon"], ...amount },
  { title: "Solver steps", note: "per sample", measures: ["steps"], ...amount },
  { title: "Solver residual", note: "relative, mean over samples", measures: ["residual"], format: number, log: true },
  { title: "Samples not converged", measures: ["unconverged"], ...share },
  { title: "Solves that started warm", measures: ["warm"], ...share },
  { title: "Norm of changes", note: "of what clients sent", measures: ["norm", "norm_largest", "bound"], format: number, log: true },
  { title: "Distance to the aggregate", note: "of what clients sent", measures: ["distance", "distance_largest"], format: number, log: true },
  { title: "Outliers", note: "updates more than three standard deviations above the median", measures: ["outliers", "clipped", "left_out"], ...amount },
  { title: "Bytes sent so far", measures: ["up", "down"], ...amount, format: bytes },
  { title: "Peak memory", measures: ["memory", "client_memory"], ...amount, format: bytes },
  { title: "Memory of the GPU", measures: ["gpu_memory", "gpu_peak"], ...amount, format: bytes },
  { title: "GPU utilisation", note: "share of the time", measures: ["gpu_work"], ...share },
  { title: "Seconds per round", measures: ["train", "evaluate"], ...amount, format: seconds },
];

/** The figures in which several runs are laid over each other: all by the same model of their clients. */
export const COMPARISONS = [
  { title: "Accuracy", note: "local: clients' own models", measure: "local", ...share },
  { title: "Shared models", note: "accuracy of the server's model with clients' heads", measure: "shared_or_own", ...share },
  { title: "Worst tenth, local", note: "of clients", measure: "local_worst", ...share },
  { title: "Worst tenth, shared", note: "of clients", measure: "shared_or_own_worst", ...share },
  { title: "Training loss", measure: "train_loss", ...amount },
  { title: "Consensus gap", note: "mean of ‖θᵢ − θ‖", measure: "gap", ...amount },
  { title: "Dual norm", note: "mean of ‖λᵢ‖", measure: "dual", ...amount },
  { title: "Augmented Lagrangian", measure: "lagrangian", format: number },
  { title: "Stationarity", measure: "stationarity", format: number, log: true },
  { title: "Gradient of the heads", measure: "head_gradient", format: number, log: true },
  { title: "Privacy spent", note: "epsilon", measure: "epsilon", ...amount },
  { title: "Solver steps", note: "per sample", measure: "steps", ...amount },
  { title: "Relative residual", note: "of solves", measure: "residual", format: number, log: true },
  { title: "Samples not converged", measure: "unconverged", ...share },
  { title: "Norm of changes", note: "median of a round", measure: "norm", ...amount },
  { title: "Largest norm of a change", note: "in a round", measure: "norm_largest", format: number, log: true },
  { title: "Distance to the aggregate", note: "median of a round", measure: "distance", ...amount },
  { title: "Largest distance to the aggregate", note: "in a round", measure: "distance_largest", format: number, log: true },
  { title: "Bound on changes", note: "by which they are clipped", measure: "bound", ...amount },
  { title: "Outliers", note: "updates of a round", measure: "outliers", ...amount },
  { title: "Bytes sent so far", measure: "sent", ...amount, format: bytes },
  { title: "Peak memory", measure: "memory", ...amount, format: bytes },
  { title: "Seconds of training per round", measure: "train", ...amount, format: seconds },
];

/** The phases of the work, and the seconds each has taken so far. */
export const PHASES = { solve: "forward, with solves", backward: "backward", update: "updates", communicate: "messages", server: "server", evaluate: "evaluation" };

/** More samples than this should not fail to converge. */
const ALARMING = 0.05;

/** How the solver does in the last rounds; nothing where nothing is solved. `alarm` says what is wrong, if anything. */
export function solver_health({ rounds }) {
  if (last_of(rounds, "steps") == null) return null;
  const last = [];
  for (let index = height(rounds) - 1; index >= 0 && last.length < 3; index -= 1) if (rounds.steps[index] != null) last.push(index);
  const sum = (name) => last.reduce((total, index) => total + (rounds[name]?.[index] ?? 0), 0);
  const health = { steps: sum("steps") / last.length, residual: sum("residual") / last.length, unconverged: sum("unconverged") / last.length };
  const lost = sum("not_finite");
  if (lost > 0) return { ...health, alarm: `In the last rounds, ${lost} samples became NaN or infinite: the solver diverges.` };
  const alarm = `In the last rounds, ${percent(health.unconverged)} of the samples did not converge.`;
  return health.unconverged > ALARMING ? { ...health, alarm } : health;
}
