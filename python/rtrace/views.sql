-- Views of a trace for DuckDB, as `rtrace info --sql` prints them and the Python package makes them. docs/recipes.md uses
-- them, SCHEMA.md says what columns mean. They read the trace where it was when they were made.

-- A row per recording; `shift_ns` leads from its clock to the one that all share.
CREATE OR REPLACE VIEW traces AS SELECT trace::INTEGER AS trace, directory, rank::INTEGER AS rank, host, command,
  begin_ns::BIGINT AS begin_ns, begin_realtime_ns::BIGINT AS begin_realtime_ns, shift_ns::BIGINT AS shift_ns
FROM (VALUES
{traces}
) AS t(trace, directory, rank, host, command, begin_ns, begin_realtime_ns, shift_ns);

-- All files of each kind, with the columns that this version knows, and those that a file has beside them. A file that a
-- trace does not have is a table without rows.
CREATE OR REPLACE VIEW _calls AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  location INTEGER, call BIGINT, parent BIGINT, region INTEGER, depth INTEGER, start_ns BIGINT, duration_ns BIGINT,
  child_ns BIGINT, ending VARCHAR, call_site INTEGER, context INTEGER)) WHERE false{calls};
CREATE OR REPLACE VIEW _regions AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  region INTEGER, library INTEGER, name VARCHAR, symbols STRUCT(symbol VARCHAR, version VARCHAR)[],
  file_offset BIGINT, size BIGINT, exit VARCHAR, single_stepped BOOLEAN, stub BOOLEAN, written BOOLEAN,
  source_file VARCHAR, source_line INTEGER, event VARCHAR, waits_for VARCHAR)) WHERE false{regions.parquet};
CREATE OR REPLACE VIEW _libraries AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  library INTEGER, path VARCHAR, name VARCHAR, build_id VARCHAR, device BIGINT,
  inode BIGINT)) WHERE false{libraries.parquet};
CREATE OR REPLACE VIEW _processes AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  pid INTEGER, parent INTEGER, start_ns BIGINT, end_ns BIGINT, executable VARCHAR, name VARCHAR,
  command_line VARCHAR[], exit_code INTEGER, rank INTEGER)) WHERE false{processes.parquet};
CREATE OR REPLACE VIEW _locations AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  location INTEGER, pid INTEGER, tid INTEGER, start_ns BIGINT, end_ns BIGINT, name VARCHAR,
  calls_entered BIGINT)) WHERE false{locations.parquet};
CREATE OR REPLACE VIEW _call_sites AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  call_site INTEGER, file VARCHAR, "offset" BIGINT, function VARCHAR, function_offset BIGINT, nearest VARCHAR,
  source_file VARCHAR, source_line INTEGER,
  inlined STRUCT(function VARCHAR, source_file VARCHAR, source_line INTEGER)[],
  single_stepped BOOLEAN)) WHERE false{call_sites.parquet};
CREATE OR REPLACE VIEW metrics AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  metric INTEGER, name VARCHAR, "column" VARCHAR, unit VARCHAR, base INTEGER, exponent INTEGER, scope VARCHAR,
  span VARCHAR)) WHERE false{metrics.parquet};
CREATE OR REPLACE VIEW events AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  time_ns BIGINT, pid INTEGER, tid INTEGER, event VARCHAR, detail VARCHAR)) WHERE false{events};
CREATE OR REPLACE VIEW _samples AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  metric INTEGER, instance INTEGER, time_ns BIGINT, value DOUBLE)) WHERE false{samples};
CREATE OR REPLACE VIEW _estimates AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  location INTEGER, region INTEGER, counted BIGINT, estimated BIGINT, margin BIGINT)) WHERE false{estimates.parquet};
CREATE OR REPLACE VIEW _profile AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  location INTEGER, path INTEGER, parent INTEGER, region INTEGER, calls BIGINT, timed BIGINT, unwound BIGINT,
  open BIGINT, unseen BIGINT, inclusive_ns BIGINT, exclusive_ns BIGINT, open_ns BIGINT, min_ns BIGINT, max_ns BIGINT,
  histogram BIGINT[], counts BIGINT[], counts_exclusive BIGINT[])) WHERE false{profile.parquet};
CREATE OR REPLACE VIEW _folded AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  location INTEGER, path INTEGER, parent INTEGER, region INTEGER, calls BIGINT, timed BIGINT, unwound BIGINT,
  open BIGINT, unseen BIGINT, inclusive_ns BIGINT, exclusive_ns BIGINT, open_ns BIGINT, min_ns BIGINT, max_ns BIGINT,
  histogram BIGINT[], counts BIGINT[], counts_exclusive BIGINT[], call_site INTEGER, context INTEGER, instant BIGINT,
  ended_with_caller BIGINT, instant_with_caller BIGINT, durations_ns BIGINT[],
  duration_calls BIGINT[])) WHERE false{folded.parquet};
CREATE OR REPLACE VIEW value_columns AS SELECT NULL::INTEGER AS trace, unnest(NULL::STRUCT(
  region INTEGER, position INTEGER, "column" VARCHAR, type VARCHAR, c_type VARCHAR, unit VARCHAR, role VARCHAR,
  at_exit BOOLEAN, source VARCHAR)) WHERE false{values.parquet};

-- The files that contain the functions.
CREATE OR REPLACE VIEW libraries AS
SELECT trace, library AS library_id, coalesce(name, parse_filename(path)) AS library, path, build_id FROM _libraries;

-- The functions that were probed; `waits_for` says what a function that does no work waits for.
CREATE OR REPLACE VIEW functions AS
SELECT r.trace, r.region, r.name AS function, l.library, l.path, r.waits_for, r.exit, r.symbols, r.file_offset, r.size
FROM _regions AS r LEFT JOIN libraries AS l ON r.trace = l.trace AND r.library = l.library_id;

-- The traced processes: `process` is the name by which the program was called.
CREATE OR REPLACE VIEW processes AS
SELECT p.trace, coalesce(p.rank, t.rank) AS rank, p.pid, coalesce(p.name, parse_filename(p.executable)) AS process, p.parent, p.start_ns, p.end_ns, p.executable,
       p.command_line, p.exit_code
FROM _processes AS p JOIN traces AS t USING (trace);

-- The traced threads. The process is the last of that ID that started before the thread, or else the first.
CREATE OR REPLACE VIEW threads AS
SELECT l.trace, coalesce(p.rank, first.rank, t.rank) AS rank, l.location, l.pid, l.tid, l.name AS thread,
       coalesce(p.process, first.process) AS process,
       l.start_ns, l.end_ns, l.calls_entered
FROM _locations AS l JOIN traces AS t USING (trace)
ASOF LEFT JOIN processes AS p ON l.trace = p.trace AND l.pid = p.pid AND l.start_ns >= p.start_ns
LEFT JOIN (SELECT trace, pid, arg_min(process, start_ns) AS process, arg_min(rank, start_ns) AS rank FROM processes GROUP BY trace, pid) AS first
  ON l.trace = first.trace AND l.pid = first.pid;

-- Where calls come from: `called_at` is the source line, or the function, or the file.
CREATE OR REPLACE VIEW call_sites AS
SELECT *, coalesce(source_file || ':' || source_line, function, 'near ' || nearest, file) AS called_at FROM _call_sites;

-- All calls that have a record, joined with what they refer to. `since_start_ns` is on one clock for all traces.
CREATE OR REPLACE VIEW calls AS
SELECT c.trace, th.rank, c.location, c.call, c.parent, c.depth, f.function, f.library, f.waits_for, th.pid, th.tid,
       th.thread, th.process, c.start_ns + t.shift_ns - {begin} AS since_start_ns, c.start_ns,
       c.duration_ns, c.child_ns, c.duration_ns - c.child_ns AS exclusive_ns, c.ending, s.called_at, c.call_site, c.region,
       c.context, c.* EXCLUDE (trace, location, call, parent, region, depth, start_ns, duration_ns, child_ns, ending,
         call_site, context)
FROM _calls AS c
JOIN traces AS t ON c.trace = t.trace
LEFT JOIN functions AS f ON c.trace = f.trace AND c.region = f.region
LEFT JOIN threads AS th ON c.trace = th.trace AND c.location = th.location
LEFT JOIN call_sites AS s ON c.trace = s.trace AND c.call_site = s.call_site;

-- The same with the function that made each call, and its library: `-` if no traced one did.
CREATE OR REPLACE VIEW calls_with_caller AS
SELECT callee.*, CASE WHEN callee.parent = 0 THEN '-' ELSE coalesce(f.function, '[lost caller]') END AS caller,
       f.library AS caller_library
FROM calls AS callee
LEFT JOIN _calls AS made_by
  ON callee.trace = made_by.trace AND callee.location = made_by.location AND callee.parent = made_by.call
LEFT JOIN functions AS f ON made_by.trace = f.trace AND made_by.region = f.region;

-- Sums over the calls of each call path of a thread: of aggregated calls, and of all others once a recording has ended.
CREATE OR REPLACE VIEW paths AS
SELECT p.trace, th.rank, p.location, p.path, p.parent, f.function, f.library, f.waits_for, th.pid, th.tid, th.thread,
       th.process, p.calls, p.timed, p.inclusive_ns, p.exclusive_ns, p.min_ns, p.max_ns, p.region
FROM (SELECT * FROM _profile UNION ALL BY NAME SELECT * FROM _folded) AS p
LEFT JOIN functions AS f ON p.trace = f.trace AND p.region = f.region
LEFT JOIN threads AS th ON p.trace = th.trace AND p.location = th.location;

-- Values of processes and the machine, in their unit.
CREATE OR REPLACE VIEW samples AS
SELECT s.trace, t.rank, m.name AS metric, s.instance, m.scope, s.time_ns + t.shift_ns - {begin} AS since_start_ns, s.time_ns,
       s.value * pow(m.base, m.exponent) AS value, m.unit, m.span
FROM _samples AS s JOIN traces AS t USING (trace) JOIN metrics AS m ON s.trace = m.trace AND s.metric = m.metric;

-- With a budget: calls without a record: counted, and further ones, by estimate: null where nothing is known of them.
CREATE OR REPLACE VIEW estimates AS
SELECT e.trace, th.rank, f.function, f.library, th.pid, th.tid, th.thread, e.counted, e.estimated, e.margin
FROM _estimates AS e
LEFT JOIN functions AS f ON e.trace = f.trace AND e.region = f.region
LEFT JOIN threads AS th ON e.trace = th.trace AND e.location = th.location;

