% Models of bench_models by Octave's `queueing`: a line of JSON each, with CPU time without start-up.
pkg load queueing
warning ("off", "all");
one = @(k) ones (1, k);
global quick;
quick = ! isempty (getenv ("QUICK"));

% Solves it until 0.2 CPU seconds are gone, once where it is slow. `solve` returns {X, R}, of each class.
function row (id, solve, slow = false)
  global quick;
  if (slow && quick)
    return;
  endif
  try
    if (! slow)
      solve ();
    endif
    times = 0;
    seconds = 0;
    before = cputime ();
    do
      answer = solve ();
      times++;
      seconds = cputime () - before;
    until (seconds >= 0.2)
    line = struct ("id", id, "cpu_ms", seconds / times * 1e3, ...
                   "throughput", {num2cell(answer{1}(:)')}, "response", {num2cell(answer{2}(:)')});
  catch problem
    line = struct ("id", id, "problem", problem.message);
  end_try_catch
  printf ("%s\n", jsonencode (line));
  fflush (stdout);
endfunction

function answer = single (X, R, V)
  answer = {X(1) / V(1), sum(R .* V)};
endfunction

function answer = classes (X, R, V)
  answer = {X(:, 1) ./ V(:, 1), sum(R .* V, 2)};
endfunction

function answer = station (R, X)
  answer = {X, R};
endfunction

function answer = closed_single (N, S, Z)
  [U, R, Q, X] = qncsmva (N, S, ones (size (S)), ones (size (S)), Z);
  answer = single (X, R, ones (size (S)));
endfunction

function answer = closed_classes (N, S, V, m, Z)
  [U, R, Q, X] = qncmmva (N, S, V, m, Z);
  answer = classes (X, R, V);
endfunction

function answer = schweitzer (N, S, Z)
  V = ones (size (S));
  by = "qncmmvaap";
  if (exist ("qncmmvabs"))
    by = "qncmmvabs";
  endif
  [U, R, Q, X] = feval (by, N, S, V, ones (1, columns (S)), Z, 1e-9, 10000);
  answer = classes (X, R, V);
endfunction

function answer = conditional (N, S, Sld, Z)
  V = ones (1, numel (S) + 1);
  [U, R, Q, X] = qncscmva (N, S, Sld, V, Z);
  answer = single (X, R, V);
endfunction

function answer = erlang (lambda, m)
  [U, R, Q, X] = qsmmm (lambda, 1, m);
  answer = station (R, X);
endfunction

function answer = erlang_limited (lambda, m, K)
  [U, R, Q, X] = qsmmmk (lambda, 1, m, K);
  answer = station (R, X);
endfunction

function answer = open_single (lambda, S, V)
  [U, R, Q, X] = qnos (lambda, S, V);
  answer = single (X, R, V);
endfunction

function answer = mixed (lambda, N, S, V)
  [U, R, Q, X] = qnmix (lambda, N, S, V);
  answer = classes (X, R, V);
endfunction

function answer = blocked (N, S, C, P)
  [U, R, Q, X] = qnmarkov (N, S, C, P);
  % It counts repeated services; behind the last station there is always room.
  answer = {X(end), N / X(end)};
endfunction

% M/M/m that stepped from one rate to another, of at most K customers: when 95 % of the step are done.
function answer = settling (from, to, m, K)
  down = min (1:K, m);
  chain = @(rate) ctmcbd (rate * ones (1, K), down);
  before = ctmc (chain (from));
  after = ctmc (chain (to));
  numbers = (0:K)';
  [start, goal] = deal (before * numbers, after * numbers);
  moved = @(t) (ctmc (chain (to), t, before) * numbers - start) / (goal - start) - 0.95;
  late = fzero (moved, [1, 200]);
  answer = {[start, goal], late};
endfunction

row ("mva-20x10000", @() closed_single (10000, 0.01 * (1 + mod (0:19, 7)), 1));
demands = [.1 .2 .05 .15; .05 .02 .2 .1; .3 .1 .15 .05; .02 .08 .06 .2; .12 .12 .12 .12]';
row ("mva-4x12", @() closed_classes (12 * one (4), demands, ones (4, 5), one (5), one (4)), true);
row ("mva-4x30", @() closed_classes (30 * one (4), demands, ones (4, 5), one (5), one (4)), true);
many = 0.01 * (1 + mod (7 * (1:20)' + 3 * (1:50), 11));
row ("schweitzer-20x50", @() schweitzer (5 + mod (7 * (1:20), 19), many, one (20)));
row ("servers-256", @() conditional (1000, [0.002 0.0015], 0.5 ./ min (1:1000, 256), 1), true);
row ("mmm-100", @() erlang (95, 100));
row ("mmmk-100", @() erlang_limited (105, 100, 150));
row ("jackson", @() open_single (3, [.01 .02 .03], [16 7 8]));
row ("mixed", @() mixed ([2 0 0], [0 20 3], [.1 .15; .2 .1; .3 .4], ones (3, 2)));
row ("load-dependent", @() conditional (300, 0.004, 0.01 ./ [1 1.8 2.4 2.8 (3 * one (296))], 1), true);
visits = [1 2; 2 1; 3 1];
row ("convolution-3", @() closed_classes (10 * one (3), repmat ([.2 .05], 3, 1), visits, [4 1], [1 2 3]), true);
row ("blocking", @() blocked (10, [1 .8 .9], [10 5 4], [0 1 0; 0 0 1; 1 0 0]));
row ("settling-station", @() settling (5, 9, 10, 250));
