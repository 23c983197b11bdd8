// What can be measured of a run, and which measures make a figure.
import { bytes, number, percent, seconds } from "./format.js";

const each = (rows, value) => rows.map((row) => [row.round, value(row)]).filter(([, y]) => y != null);

const headline = (info, row) => (info?.headline === "shared" && row.shared ? row.shared : row.local);

/** Both models of the clients; where nothing is shared there is only one. */
export const both = (row) => ({ local: row.local, shared: row.shared ?? row.local });

/** Every measure gives points `[round, value]` of a story. */
export const MEASURES = {
  shared_or_own: { name: "shared model", of: (story) => each(story.evaluations, (row) => both(row).shared.accuracy) },
  local_worst: { name: "worst tenth, own models", of: (story) => each(story.evaluations, (row) => row.local.worst) },
  local: { name: "own model", of: (story) => each(story.evaluations, (row) => row.local.accuracy) },
  shared: { name: "shared model", of: (story) => each(story.evaluations, (row) => row.shared?.accuracy) },
  worst: { name: "worst tenth", of: (story, info) => each(story.evaluations, (row) => headline(info, row).worst) },
  train_loss: { name: "training", of: (story) => each(story.rounds, (row) => row.loss) },
  test_loss: { name: "test", of: (story, info) => each(story.evaluations, (row) => headline(info, row).loss) },
  cohort_gap: { name: "clients of the round", of: (story) => each(story.rounds, (row) => row.gap) },
  gap: { name: "all clients", of: (story) => each(story.evaluations, (row) => row.gap) },
  dual: { name: "dual", of: (story) => each(story.evaluations, (row) => row.dual_norm || null) },
  epsilon: { name: "epsilon", of: (story) => each(story.rounds, (row) => row.epsilon) },
  steps: { name: "steps", of: (story) => each(story.rounds, (row) => row.steps) },
  residual: { name: "residual", of: (story) => each(story.rounds, (row) => row.residual) },
  unconverged: { name: "not converged", of: (story) => each(story.rounds, (row) => row.unconverged) },
  norm: { name: "median", of: (story) => each(story.rounds, (row) => row.apart?.norm || null) },
  norm_largest: { name: "largest", of: (story) => each(story.rounds, (row) => row.apart?.largest_norm || null) },
  bound: { name: "bound", of: (story) => each(story.rounds, (row) => row.bound) },
  distance: { name: "median", of: (story) => each(story.rounds, (row) => row.apart?.distance || null) },
  distance_largest: { name: "largest", of: (story) => each(story.rounds, (row) => row.apart?.largest_distance || null) },
  outliers: { name: "outliers", of: (story) => each(story.rounds, (row) => row.apart?.outliers) },
  clipped: { name: "clipped", of: (story) => each(story.rounds, (row) => row.apart?.clipped) },
  left_out: { name: "left out", of: (story) => each(story.rounds, (row) => row.apart?.left_out) },
  up: { name: "to the server", of: (story) => each(story.rounds, (row) => row.up) },
  down: { name: "to clients", of: (story) => each(story.rounds, (row) => row.down) },
  sent: { name: "both ways", of: (story) => each(story.rounds, (row) => row.up + row.down) },
  memory: { name: "whole process", of: (story) => each(story.timings, (row) => row.peak_memory) },
  client_memory: { name: "one client's work", of: (story) => each(story.timings, (row) => row.most_client_memory || null) },
  gpu_memory: { name: "held", of: (story) => each(story.timings, (row) => row.device?.memory) },
  gpu_peak: { name: "at most", of: (story) => each(story.timings, (row) => row.device?.peak_memory) },
  gpu_work: { name: "at work", of: (story) => each(story.timings, (row) => row.device?.utilisation) },
  train: { name: "training", of: (story) => each(story.timings, (row) => row.train) },
  evaluate: { name: "evaluation", of: (story) => each(story.timings, (row) => row.evaluate || null) },
};

const share = { format: percent, zero: true, most: 1 };

/** The figures of one run. */
export const FIGURES = [
  { title: "Accuracy", measures: ["local", "shared", "worst"], ...share },
  { title: "Loss", measures: ["train_loss", "test_loss"], format: number, zero: true },
  { title: "Consensus gap", note: "mean of ‖θᵢ − θ‖", measures: ["cohort_gap", "gap"], format: number, zero: true },
  { title: "Dual norm", note: "mean of ‖λᵢ‖", measures: ["dual"], format: number, zero: true },
  { title: "Privacy spent", note: "epsilon, all rounds so far", measures: ["epsilon"], format: number, zero: true },
  { title: "Solver steps", note: "a sample", measures: ["steps"], format: number, zero: true },
  { title: "Solver residual", note: "relative, a sample", measures: ["residual"], format: number, log: true },
  { title: "Samples not converged", measures: ["unconverged"], format: percent, zero: true },
  { title: "Norm of clients' changes", measures: ["norm", "norm_largest", "bound"], format: number, log: true },
  { title: "Distance to the aggregate", note: "of what clients sent", measures: ["distance", "distance_largest"], format: number, log: true },
  { title: "Outliers", note: "updates beyond the median by three deviations", measures: ["outliers", "clipped", "left_out"], format: number, zero: true },
  { title: "Bytes sent so far", measures: ["up", "down"], format: bytes, zero: true },
  { title: "Peak memory", measures: ["memory", "client_memory"], format: bytes, zero: true },
  { title: "Memory of the GPU", measures: ["gpu_memory", "gpu_peak"], format: bytes, zero: true },
  { title: "GPU at work", note: "share of the time", measures: ["gpu_work"], ...share },
  { title: "Seconds a round", measures: ["train", "evaluate"], format: seconds, zero: true },
];

/** The figures in which several runs are laid over each other: all by the same model of their clients. */
export const COMPARISONS = [
  { title: "Accuracy", note: "local: clients' own models", measure: "local", ...share },
  { title: "Shared models", note: "right answers of the server's model with clients' heads", measure: "shared_or_own", ...share },
  { title: "Worst tenth", note: "local", measure: "local_worst", ...share },
  { title: "Training loss", measure: "train_loss", format: number, zero: true },
  { title: "Consensus gap", measure: "gap", format: number, zero: true },
  { title: "Privacy spent", note: "epsilon", measure: "epsilon", format: number, zero: true },
  { title: "Solver steps a sample", measure: "steps", format: number, zero: true },
  { title: "Samples not converged", measure: "unconverged", format: percent, zero: true },
  { title: "Bytes sent so far", measure: "sent", format: bytes, zero: true },
  { title: "Seconds of training a round", measure: "train", format: seconds, zero: true },
];

/** The phases of the work, and the seconds each has taken so far. */
export function phases(story) {
  const names = { solve: "forward and solving", backward: "backward", update: "updates", communicate: "messages", server: "server" };
  const rows = Object.entries(names).map(([key, name]) => ({ name, seconds: story.totals[key] }));
  return [...rows, { name: "evaluation", seconds: story.totals.evaluate }];
}

/** How the solver does in the last rounds; nothing where nothing is solved. `alarm` says what is wrong, if anything. */
export function solver(story) {
  const last = story.rounds.filter((row) => row.steps != null).slice(-3);
  if (last.length === 0) return null;
  const mean = (key) => last.reduce((sum, row) => sum + row[key], 0) / last.length;
  const health = { steps: mean("steps"), residual: mean("residual"), unconverged: mean("unconverged") };
  const lost = last.reduce((sum, row) => sum + row.not_finite, 0);
  if (lost > 0) return { ...health, alarm: `In the last rounds, ${lost} samples became NaN or infinite: the solver diverges.` };
  const alarm = `In the last rounds, ${percent(health.unconverged)} of the samples did not converge.`;
  return health.unconverged > ALARMING ? { ...health, alarm } : health;
}

/** More samples than this should not fail to converge. */
const ALARMING = 0.05;
