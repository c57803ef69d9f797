/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The byte format between the kernel side and user space, and the limits both keep.
 *
 * No kernel header is needed, so that the same file compiles for BPF and for the tests in user
 * space. The Rust types of these structs come from the BTF of the compiled programs.
 */
#ifndef RTRACE_H
#define RTRACE_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum rt_limit {
	/* Frames held in a thread's own storage; deeper ones go to a second storage, made when needed. */
	RT_FRAMES_NEAR = 47,
	RT_FRAMES_FAR = 977,
	RT_FRAMES = 1024, /* both */
	/* Frames of a thread that were left without a return, and may still turn out to be suspended. */
	RT_LEFT_MAX = 16,
	/* Times of CLOCK_MONOTONIC in units of 2^23 ns, modulo 2^29: of two, it is known for 26 days which is later. */
	RT_SINCE_SHIFT = 23,
	RT_SINCE_BITS = 29,
	/* Callers that only return, one above the other, that are skipped to find where a call returns to. */
	RT_SKIPS_MAX = 4,
	/* Bits of rt_arrival.words, see there. */
	RT_SKIP_ASKED_BIT = 31,
	RT_SKIP_FIXED_BIT = 30,
	RT_NO_PROBE = 255, /* for the distance of a probe from a return address, which is shorter */
	RT_POPS_MAX = 8191, /* words that a function takes off the stack as it returns: 16 bits of bytes */
	RT_POPS_OVERWRITES = 1 << 13, /* beside them: it writes to the slot of its return address before it returns */
	RT_POPS_UNKNOWN = 1 << 14, /* beside them: it may return with a stack pointer that nothing tells from others */
	RT_TAILS_MAX = 128, /* functions that end in a jump to the next, before nobody knows when each has ended */
	/* Open frames handed over per pass of their reader: what fits a buffer of the kernel's iterator. */
	RT_OPEN_CHUNK = 128,
	/* Buckets of a path's histogram: the first holds 0, the n-th 2^(n-1) to 2^n - 1 ns. */
	RT_BUCKETS = 48,
	/* Sums by which each CPU counts entries where no region can be throttled; a power of two. */
	RT_CHECKED = 4096,
	RT_COUNTERS = 8, /* counters of a recording, at most */
	RT_WORDS = 24, /* words of values of a call, at most, beside lists that are read when it returns */
	RT_LISTED = 58, /* words of these */
	RT_SUMMED = 65536, /* elements of a list that are added up, at most */
	RT_KEPT = 4096, /* bytes of a list that is kept until a call returns, at most */
	RT_FETCHES = 24, /* operations that fetch them */
	RT_SUMS = 4, /* counters that a function's values add to */
	RT_WATCHES = 4, /* of them variables that are watched: x86 has as many debug registers */
	RT_LEVELS = 128, /* return addresses of a context, at most */
	RT_ARGUMENTS = 1024, /* bytes of a command line that is handed over, less one; a power of two */
	RT_STACK_PAGES = 8, /* pages of a stack that user space gets at a time */
	RT_PYTHON_FRAMES = 64, /* frames of Python functions in a context, with what is between them; a power of two */
	RT_NOT_THERE = 0xffff, /* the offset of what a version of Python does not have */
};

/* Frames whose counters are held in a thread's own storage; those of deeper ones are in chunks, made when needed. */
#define RT_ROWS_NEAR 9
#define RT_ROWS_CHUNK 8 /* a power of two, so that the verifier understands the remainder */

#define RT_COMM_LEN 16
#define RT_NO_REGION 0xffffffffu
/* In place of the function that another ends in a jump to: calls within that other one are recorded. */
#define RT_OPENS 0xfffffffeu
/* In the same place: it may also end in a jump to any function. */
#define RT_ANYWHERE 0xfffffffdu

/* The least duration of calls that leave as records, where none does. */
#define RT_NEVER (~0ull)

/*
 * Attach cookie of an entry: the region in the low half, how to treat the site in the high half. The
 * values are bit positions.
 */
enum rt_cookie {
	RT_COOKIE_POLICY = 32, /* 2 bits, enum rt_policy */
	RT_COOKIE_STEP = 34, /* 2 bits, enum rt_step */
	RT_COOKIE_LAPS = 36, /* the function may come back to its first instruction without being called again */
	RT_COOKIE_TAILS = 37, /* 2 bits, enum rt_tails */
	RT_COOKIE_JUMP = 39, /* 2 bits, enum rt_jump */
	RT_COOKIE_UNTRACED = 41, /* its calls are not recorded: the site is there for its jumps */
	RT_COOKIE_STUB = 42, /* the site is a stub's */
	RT_COOKIE_POPS = 43, /* the function does not return by a plain `ret`: the table says how */
	RT_COOKIE_FRAME = 44, /* 8 bits: words by which RT_STEP_FRAME moves the stack pointer */
	RT_COOKIE_PLACE = 52, /* 12 bits: where in its page the site is, if the program does its instruction */
	RT_COOKIE_DEPTH = 44, /* 20 bits: words from the stack pointer to the return address, if the program does not */
};

/* Attach cookie of a return site: its id in the low half. */
enum rt_return_cookie {
	RT_RETURN_DISTANCE = 32, /* 8 bits: bytes from the return address to the site */
	RT_RETURN_FIXED = 40, /* all calls that return here enter the same traced function */
	RT_RETURN_STEPPED = 41, /* the kernel single-steps the instruction */
	RT_RETURN_ONLY = 42, /* the code there only returns: it was to be skipped, but for others like it */
	RT_RETURN_STORED = 43, /* memory may not be as the function left it */
	RT_RETURN_NARROW = 44, /* only the low half of the result is known */
	RT_RETURN_RESULT = 45, /* 4 bits: the register that the result is in, by its number in instructions; rsp: none */
	RT_RETURN_WORDS = 49, /* 15 bits, signed: words by which the stack pointer has moved from there to here */
};

/* How the return of a region's calls is detected. */
enum rt_policy {
	RT_POLICY_RETURN_SITE = 0,
	RT_POLICY_ENTRY_ONLY = 1,
	RT_POLICY_NEVER = 2, /* it does not return */
	RT_POLICY_PLACE = 3, /* the site is a place within a function: nothing is called there */
};

/* By which function control leaves others without a return. */
enum rt_jump {
	RT_JUMP_NONE = 0,
	RT_JUMP_LONGJMP = 1, /* longjmp of the GNU C library: its first argument is the buffer */
	RT_JUMP_UNWIND = 2, /* _Unwind_SetIP of GCC: its first argument is the context of who goes on */
};

/* Which functions a function may end in by a jump. */
enum rt_tails {
	RT_TAILS_NEVER = 0,
	RT_TAILS_KNOWN = 1, /* those in the table of tail calls */
	RT_TAILS_ANYWHERE = 2,
	RT_TAILS_DOUBTFUL = 3, /* as the table says, but its calls may also be left in ways that no probe sees */
	RT_TAILS_JUMPED = 4, /* of a frame: a jump was seen to leave it, so it has not ended in one */
};

/* What is known of a return address. */
enum rt_arrival_kind {
	RT_ARRIVAL_ASKED = 0, /* user space was told */
	RT_ARRIVAL_PLACED = 1, /* a probe detects returns to it */
	RT_ARRIVAL_SKIP = 2, /* the code there only returns: what counts is where that returns to */
	RT_ARRIVAL_IMPOSSIBLE = 3, /* no probe can be placed */
	RT_ARRIVAL_DROPPED = 4, /* the probe cost too much */
};

/* What is known of the code behind a call, from the lowest bit of the words of RT_ARRIVAL_PLACED on. */
enum rt_behind {
	RT_BEHIND_FIXED = 1, /* all calls that return there enter the same traced function */
	/* Two bits: how its function may get control back without a return. */
	RT_BEHIND_CATCHES = 2, /* by jumps that probes see */
	RT_BEHIND_LANDS = 4, /* by others, too */
	RT_BEHIND_JOINED = 6, /* by others, which may come there, too */
	RT_BEHIND_BACK = 6, /* the mask */
	RT_BEHIND_BITS = 3,
};

/* Why a call has no duration. */
enum rt_untimed_reason {
	RT_UNTIMED_NOT_YET_PLACED = 0,
	RT_UNTIMED_NOT_PROBEABLE = 1,
	RT_UNTIMED_DROPPED = 2,
	RT_UNTIMED_NOT_ASKED_FOR = 3,
	RT_UNTIMED_OTHER = 4,
	RT_UNTIMED_AMBIGUOUS = 5, /* whether it returned or was left cannot be told, or when */
	RT_UNTIMED_REASONS = 6,
};

/* The instruction at a site, if the program does it where it may write the registers. */
enum rt_step {
	RT_STEP_BY_KERNEL = 0, /* it does not */
	RT_STEP_LANDING = 1, /* endbr64 */
	RT_STEP_RETURN = 2, /* ret */
	RT_STEP_FRAME = 3, /* sub of a number from the stack pointer */
};

enum rt_ending {
	RT_RETURNED = 0,
	RT_UNWOUND = 1,
	RT_OPEN = 2,
	RT_UNSEEN = 3,
	RT_ENDINGS = 4,
} __attribute__((packed));

enum rt_loss {
	RT_LOSS_RING_FULL = 0,
	RT_LOSS_TOO_DEEP = 1,
	RT_LOSS_NO_MEMORY = 2,
	RT_LOSS_TOO_MANY_LOCATIONS = 3,
	RT_LOSS_EVENT = 4,
	RT_LOSS_TOO_MANY_PATHS = 5,
	RT_LOSS_ACCESS = 6, /* an access to a watched variable was not counted */
	RT_LOSS_VALUE = 7, /* the value of one was not recorded */
	RT_LOSS_UNREAD = 8, /* not all values of a call could be read */
	RT_LOSS_CONTEXT = 9, /* the context of a call was not recorded */
	RT_LOSS_MAYBE_LAP = 10, /* a hit was a call, or the same one again: a lap, or after a fault */
	RT_LOSS_LAP = 11, /* no loss: a hit was such a lap, and no call */
	RT_LOSS_OUTSIDE = 12, /* no loss: a call that is not within one of those that open */
	RT_LOSSES = 13,
};

/* One finished call: complete by itself. Times in ns of CLOCK_MONOTONIC. */
struct rt_call {
	u64 id; /* counts up from 1 on its location */
	u64 parent; /* id of the call that made this one; 0: a root */
	u64 start;
	u64 duration;
	u64 child; /* part of duration spent in traced callees */
	u64 site; /* the return address: where in its caller the call was made; 0: it could not be read */
	u32 region;
	u32 location;
	u32 space; /* the address space, see struct rt_process */
	u16 depth; /* number of calls it is nested in */
	enum rt_ending ending;
	u8 reserved;
};

/* What was last called from somewhere, so that a loop need not look it up again. */
struct rt_callee {
	u32 region;
	u32 path; /* 0: nothing yet */
};

/* All finished calls of one call path on one location, folded. Written by its thread alone. */
struct rt_path {
	u32 location; /* 0: the entry is not in use */
	u32 region;
	u32 parent; /* path of the callers; 0: a root */
	u32 reserved;
	struct rt_callee last;
	u64 endings[RT_ENDINGS]; /* calls by enum rt_ending */
	u64 inclusive; /* sum of the durations; those of open calls until they were given up */
	u64 exclusive; /* the same without traced callees */
	u64 open; /* part of `inclusive` in open calls */
	u64 min; /* of returned and unwound calls */
	u64 max;
	u64 histogram[RT_BUCKETS]; /* returned and unwound calls by duration */
};

/* Key of the table of path ids. */
struct rt_path_key {
	u32 location;
	u32 parent;
	u32 region;
};

/* Key of what is known of a return address. */
struct rt_arrival_key {
	u64 address;
	u32 space; /* the address space, see struct rt_process */
	u32 reserved;
};

/* Key of what is known of a return address in a file, before a process maps it. */
struct rt_primed_key {
	u64 inode;
	u64 offset; /* in the file, in bytes */
	u32 device; /* as the kernel numbers it */
	u32 pid;
};

struct rt_arrival {
	enum rt_arrival_kind kind;
	/*
	 * Of RT_ARRIVAL_ASKED: when, in milliseconds or nearly so. Of RT_ARRIVAL_SKIP: words from the slot of the call
	 * to that of its caller; RT_SKIP_ASKED_BIT once user space was asked for a probe there as long as none detects
	 * returns to the caller; RT_SKIP_FIXED_BIT as RT_BEHIND_FIXED. Of RT_ARRIVAL_PLACED: enum rt_behind, and above
	 * its bits when the probe was last taken out, as RT_SINCE_SHIFT tells it; 0 where there always was one. Of
	 * RT_ARRIVAL_DROPPED: after how many more calls from there user space is asked again; 0: never.
	 */
	u32 words;
	/* Of RT_ARRIVAL_PLACED: bytes from the return address to the probe; RT_NO_PROBE where nothing returns to it. */
	u32 distance;
};

/* What user space has to do about a return address. */
enum rt_question_kind {
	RT_QUESTION_ARRIVAL = 0, /* to see returns to it */
	RT_QUESTION_SITE = 1, /* the same with a probe there: too many callers that only return, one above the other */
	RT_QUESTION_NONE = 2, /* nothing: it was primed */
	RT_QUESTION_INTERIM = 3, /* a probe there, though the caller only returns: it does so to where no probe is yet */
};

/* A return address that a process has met. */
struct rt_question {
	u64 address; /* 0: a process that was forked, or has lost its probes */
	u64 time;
	u32 pid;
	u32 space;
	u32 parent; /* of a process that was forked; of one that has lost its probes itself */
	enum rt_question_kind kind;
	struct rt_primed_key place; /* of the address; without an inode: in no file, or not looked up */
};

/* A thread is about to make code writable, or code of what is writable; or it has all code of who has forked it. */
struct rt_code_change {
	u64 address;
	u64 length; /* bytes */
	u32 pid;
	u32 thread;
	u32 is_sealed; /* nobody can write to it any more */
	u32 is_inherited; /* without an address */
};

/* Hits of a return site. */
struct rt_site_hits {
	u64 matched; /* that ended a call; of several threads at once some may go uncounted */
	u64 unmatched;
	u64 spent; /* nanoseconds that the program took at those */
	u64 since; /* when the probe was last taken out, as RT_SINCE_SHIFT tells it; 0: there always was one */
};

/* What the programs took at some of the hits that were recorded, on one CPU. Times in nanoseconds. */
struct rt_hit_times {
	u64 enters;
	u64 enter_time;
	u64 returns;
	u64 return_time;
};

/* Key of the tables of tail calls and of untimed calls. */
struct rt_tail_key {
	u32 from; /* region */
	u32 to;
};

struct rt_untimed_key {
	u32 region;
	enum rt_untimed_reason reason;
};

/* Key of the table of calls that were only counted. */
struct rt_counted_key {
	u32 location;
	u32 region;
};

/* Calls that were only counted; 0 where the entry is free. */
struct rt_call_count {
	struct rt_counted_key key;
	u64 calls;
};

/* What one counter counted during a call; a record of a call ends in one of each counter. */
struct rt_reading {
	u64 inclusive;
	u64 child; /* part of it counted in traced callees */
};

/* What one counter counted in all calls of a call path, folded; a path has one of each counter. */
struct rt_count_sum {
	u64 inclusive;
	u64 exclusive; /* the same without traced callees */
};

struct rt_path_counts {
	struct rt_count_sum sum[RT_COUNTERS];
};

/* What an operation does that fetches a value. It fills the word `target` of the call's values. */
enum rt_fetch_op {
	RT_FETCH_REGISTER = 0, /* `source`: its number in instructions */
	RT_FETCH_STACK = 1, /* `number` bytes above the slot of the return address */
	RT_FETCH_MEMORY = 2, /* `number` bytes behind the address in the word `source` */
	RT_FETCH_TEXT = 3, /* at the address in the word `source`, `number` bytes: a multiple of 8, at most 64 */
	RT_FETCH_RESULT = 4,
	/*
	 * A list at the address in the word `source`: how many elements are read, then these. `number` says the bytes of
	 * an element, how many are read at most, and the word that says how many there are, each in a byte.
	 */
	RT_FETCH_LIST = 5,
	RT_FETCH_NUMBER = 6, /* `number` itself */
	RT_FETCH_SHIFT = 7, /* the word `source`, right by `number` bits */
	RT_FETCH_MULTIPLY = 8, /* this and the following: of the word `source` and `number` */
	RT_FETCH_ADD = 9,
	RT_FETCH_SUBTRACT = 10,
	RT_FETCH_MAX = 11,
	RT_FETCH_MIN = 12,
	/* The thread pointer and `number`, or the word so many bytes behind the entry's probe (RT_FETCH_WORDS). */
	RT_FETCH_VARIABLE = 13,
	/* What a stub has stored `number` bytes above the slot of the return address; missing where the call comes by none. */
	RT_FETCH_VECTOR = 14,
	/*
	 * The word `source`, right by the bits in the low byte of `number`; missing where its fourth byte is not the next
	 * byte of `number`.
	 */
	RT_FETCH_TAGGED = 15,
	RT_FETCH_CPU = 16, /* the CPU on which the thread runs; the NUMA node of that CPU if `number` is not 0 */
	/*
	 * Keeps the list at the address in the word `source` until the call returns: `number` is as of a list. Fills a word
	 * with what says which list is kept.
	 */
	RT_FETCH_KEEP = 17,
	/*
	 * Of the list that the word `source` says, the element whose place is in another word; 0 if that is negative.
	 * `number` says the bytes of an element, and in its third byte the word.
	 */
	RT_FETCH_KEPT = 18,
	RT_FETCH_SUM = 19, /* the sum of the list at the address in the word `source`: `number` is as of a list */
	RT_FETCH_OPS = 20,
};

/* How a fetch treats what it has got: bits of `flags`. */
enum rt_fetch_flag {
	RT_FETCH_BITS = 63, /* the low bits that count, less one */
	RT_FETCH_SIGNED = 64, /* extend them by the sign */
	RT_FETCH_WORDS = 128, /* `number` is a word, whose value is meant */
};

struct rt_fetch {
	u8 op; /* enum rt_fetch_op */
	u8 target;
	u8 source;
	u8 flags; /* enum rt_fetch_flag */
	int number;
};

/* A counter to which a word is added when the call returns, if these operations have succeeded: a bit for each. */
struct rt_sum {
	u8 counter;
	u8 word;
	u16 reserved;
	u32 needs;
};

/* What is fetched of a region's calls: `enters` operations at the entry, the others up to `count` at the return. */
struct rt_program {
	u8 enters;
	u8 count;
	u8 sums;
	u8 lists; /* whether lists are read when a call returns */
	u32 region;
	struct rt_fetch fetch[RT_FETCHES];
	struct rt_sum sum[RT_SUMS];
};

/* The values of a call. */
struct rt_values {
	u8 has; /* whether its region has a program */
	u8 waits; /* whether that has something to do when the call returns */
	u8 lists; /* whether that reads lists then */
	u8 reserved;
	u32 failed; /* operations that failed, a bit for each; those that did not run are among them */
	u64 context; /* number of the call's context; 0: it has none */
	u64 word[RT_WORDS];
};

/* How a frame is left for its caller, whose stack pointer is as a return from there leaves it. */
enum rt_rule_kind {
	RT_RULE_STACK = 0, /* `offset` above the stack pointer */
	RT_RULE_FRAME = 1, /* `offset` above the frame pointer */
	RT_RULE_STORED = 2, /* in the word that is `offset` above the frame pointer */
	RT_RULE_OUTERMOST = 3, /* there is no caller */
	RT_RULE_SIGNAL = 4, /* a signal handler returns there */
	RT_RULE_NONE = 5, /* nothing is known of it that helps */
};

/* Where the caller's frame pointer is. */
enum rt_saved {
	RT_SAVED_UNTOUCHED = 0, /* where it was */
	RT_SAVED_BY_STACK = 1, /* in the word that is `saved_at` above the caller's stack pointer */
	RT_SAVED_BY_FRAME = 2, /* in the word that is so many bytes above the frame pointer */
	RT_SAVED_NOWHERE = 3, /* it is not known */
};

/* What is known of the code behind a return address. */
struct rt_rule {
	u8 kind; /* enum rt_rule_kind */
	u8 saved; /* enum rt_saved */
	u16 reserved;
	int offset;
	int saved_at;
};

/* Numbers of contexts that mean something. */
enum rt_context_number {
	RT_CONTEXT_NONE = 0, /* it was not recorded */
	RT_CONTEXT_EMPTY = 1, /* the function around the call is traced, or the outermost */
	RT_CONTEXT_FIRST = 2,
};

/* Why a context has no more addresses. */
enum rt_context_end {
	RT_CONTEXT_COMPLETE = 0, /* the next is traced, or there is none */
	RT_CONTEXT_CUT = 1, /* it is as long as was asked for */
	RT_CONTEXT_ASKED = 2, /* how the last frame is left was not known yet */
	RT_CONTEXT_UNDESCRIBED = 3, /* nobody knows it */
	RT_CONTEXT_UNREADABLE = 4, /* the stack could not be read there */
	RT_CONTEXT_BROKEN = 5, /* the stack is not what the tables say */
	RT_CONTEXT_SIGNAL = 6, /* a signal interrupted what comes next */
	RT_CONTEXT_GOES_ON = 7,
};

/* Where the interpreter of a process has what frames are read from: offsets in bytes, as its version has them. */
struct rt_python {
	u64 interpreters; /* address of the pointer to the first interpreter */
	u16 next_interpreter; /* in an interpreter */
	u16 threads;
	u16 next_thread; /* in the state of a thread */
	u16 thread_id;
	u16 current; /* of its innermost frame, or of the C frame that has it */
	u16 c_frame; /* in that C frame: the frame; RT_NOT_THERE from 3.13 on */
	u16 c_previous;
	u16 code; /* in a frame */
	u16 instruction;
	u16 previous;
	u16 owner;
	u16 is_entry; /* RT_NOT_THERE from 3.12 on */
	u16 names; /* in a code object: file, name, qualified name and table of lines, one behind the other */
	u16 line;
	u16 bytecode;
	u16 hash; /* in a string; RT_NOT_THERE from 3.12 on, where code objects have versions */
};

/*
 * A frame of a Python function; without code: where the interpreter was called. Then `key` is an address on its part of the
 * stack, in which the lowest bit says that there was no room for all frames of that call.
 */
struct rt_python_frame {
	u64 code; /* address of the code object */
	u64 key; /* bytes from its first instruction in the low half, what tells it from others in the high half */
};

/* The context of calls: a record of as many addresses as `count` says. */
struct rt_context {
	u64 sp; /* how far the walk is: the stack pointer behind the return to `word`, and the frame pointer there */
	u64 bp;
	u64 word;
	u32 id;
	u32 space;
	u32 pid;
	u32 end; /* enum rt_context_end */
	u32 count;
	u16 has_bp; /* whether the frame pointer is known */
	u16 entered; /* whether `word` is not the return address of the call itself */
	u16 is_python; /* whether the interpreter of the process is known */
	u16 frames; /* entries of `python` */
	u32 passed; /* calls of the interpreter that the walk has passed */
	u64 interprets[RT_LEVELS / 32]; /* a bit for the call's own return address and each other: in the interpreter */
	struct rt_python_frame python[RT_PYTHON_FRAMES]; /* the innermost first */
	u64 address[RT_LEVELS]; /* the innermost first */
};

/* What a context is known by. Two numbers of 64 bits that nobody can foresee: no two contexts have the same. */
struct rt_context_key {
	u64 low;
	u64 high;
	u32 space;
	u32 end;
};

/* A context whose walk user space goes on with: a record with the stack from there on. */
struct rt_stack {
	struct rt_context context;
	u64 limit; /* slot where the walk ends; 0: at the end of the stack */
	u64 start; /* address of the first byte */
	u64 pages; /* those that could be read, a bit for each */
	u8 bytes[RT_STACK_PAGES * 4096];
};

/* Moments of a call: bits. */
enum rt_moment_kind {
	RT_MOMENT_ENTER = 1,
	RT_MOMENT_LEAVE = 2,
};

/* A moment at which user space acts. */
struct rt_moment {
	u64 time;
	u32 region;
	u32 kind; /* enum rt_moment_kind */
	u32 pid;
	u32 tid;
};

/* Where a counter is read. */
enum rt_count {
	RT_COUNT_EVENT = 0, /* a performance event of each CPU */
	RT_COUNT_CPU_TIME = 1, /* ns on a CPU */
	RT_COUNT_PAGE_FAULTS = 2, /* this and those up to the migrations: what the kernel counts for a task */
	RT_COUNT_MINOR_FAULTS = 3,
	RT_COUNT_MAJOR_FAULTS = 4,
	RT_COUNT_CONTEXT_SWITCHES = 5,
	RT_COUNT_MIGRATIONS = 6,
	RT_COUNT_ACCESSES = 7, /* accesses to a variable, as a breakpoint in the hardware tells */
	RT_COUNT_VALUES = 8, /* a sum of values that calls have */
};

enum rt_traced {
	RT_TRACED_FROM_EXEC = 0, /* nothing is recorded before its next exec */
	RT_TRACED = 1,
};

/* A traced process. */
struct rt_process {
	u32 traced; /* enum rt_traced */
	u32 space; /* number of its address space: another after each exec, and of each child */
	u64 executed; /* the kernel's count of its execs, as of the last one that was seen; 0: none was */
};

/* What is known of a child that has no probes of its own yet, as bits. */
enum rt_unlinked {
	RT_UNLINKED_RAN = 1, /* a thread of it has met a breakpoint, or may have */
	RT_UNLINKED_EXECUTED = 2, /* it has executed a program, in which it inherits no breakpoints */
	RT_UNLINKED_FREE = 4, /* its parent does not wait any more, and nobody has stopped it: it runs */
	RT_UNLINKED_ANSWERED = 8, /* user space has stopped it, or cannot: its parent need not wait */
};

enum rt_event_kind {
	RT_EVENT_FORK = 0,
	RT_EVENT_EXEC = 1,
	RT_EVENT_EXIT = 2,
	RT_EVENT_THREAD_END = 3,
	RT_EVENT_WITHHELD = 4, /* nothing of it is recorded before its next exec, by rt_may_observe() */
};

/* Something that happened to a traced process. */
struct rt_event {
	u64 time;
	enum rt_event_kind kind;
	u32 pid;
	u32 tid;
	u32 value; /* fork: the child's pid; exit: the wait status; thread end: its location; withheld: whether an exec follows that is the cause */
};

/* A process executes a program: an event, and its command line behind it, if it fits. */
struct rt_execution {
	struct rt_event event;
	u64 length; /* of the command line, in bytes */
	char arguments[RT_ARGUMENTS]; /* each ends in null */
};

/* What a watched variable held after a write. */
struct rt_access {
	u64 time;
	u64 value; /* its bytes, the others are 0 */
	u32 tid;
	u32 watch;
};

/* One thread lifetime, keyed by its location id. */
struct rt_location {
	u64 start; /* when the thread began */
	u64 end; /* when it ended; 0: it has not */
	u64 calls; /* enters given an id, known at its end */
	u32 pid;
	u32 tid;
	char comm[RT_COMM_LEN];
};

/* Key and value of the table of losses. */
struct rt_loss_key {
	u32 region; /* RT_NO_REGION: not known */
	enum rt_loss reason;
};

/* Where the clock of a CPU found a process. */
struct rt_place {
	u64 address; /* of the instruction; 0 in the kernel */
	u64 time;    /* of the sample; 0 where samples of one place are counted together */
	u32 process;
	u32 in_kernel;
};

/* The same with the stack of the process from its stack pointer on. */
struct rt_sampled {
	struct rt_place place;
	u64 ip; /* of the instruction in code of the process, also while it is in the kernel */
	u64 sp;
	u64 bp;
	u64 start; /* address of the first byte */
	u64 pages; /* those that could be read, a bit for each */
	u8 bytes[RT_STACK_PAGES * 4096];
};

/* What the reader of open frames gets per thread: this, then `frames` of struct rt_open_call, each with its readings. */
struct rt_open_thread {
	u64 calls;
	u32 location;
	u32 frames;
	char comm[RT_COMM_LEN];
};

struct rt_open_call {
	struct rt_call call;
	u32 path;
	u16 has_record; /* whether it leaves as a record, too */
	u16 doubt; /* why it may have returned: 1 + enum rt_untimed_reason; 0: it runs, or was left */
};

_Static_assert(sizeof(struct rt_call) == 64, "record of a call");
_Static_assert(sizeof(struct rt_reading) == 16, "reading of a counter");
_Static_assert(sizeof(struct rt_program) == 8 + 8 * RT_FETCHES + 8 * RT_SUMS, "program");
_Static_assert(sizeof(struct rt_python) == 40, "where an interpreter has what");
_Static_assert(sizeof(struct rt_rule) == 12, "rule of a return address");
_Static_assert(sizeof(struct rt_values) == 16 + 8 * RT_WORDS, "values");
_Static_assert(sizeof(struct rt_event) == 24, "record of an event");
_Static_assert(sizeof(struct rt_access) == 24, "record of an access");
_Static_assert(sizeof(struct rt_location) == 48, "location");
_Static_assert(sizeof(struct rt_open_thread) == 32, "open thread");
_Static_assert(sizeof(struct rt_open_call) == 72, "open call");
_Static_assert(sizeof(struct rt_path_counts) == 128, "counts of a path");
_Static_assert(sizeof(struct rt_path) == 480, "path");
_Static_assert(sizeof(struct rt_arrival_key) == 16, "key of a return address");
_Static_assert(sizeof(struct rt_primed_key) == 24, "key of a return address in a file");
_Static_assert(sizeof(struct rt_question) == 56, "record of a return address");
_Static_assert(sizeof(struct rt_code_change) == 32, "record of a change of code");
_Static_assert(sizeof(struct rt_call_count) == 16, "counted calls");
_Static_assert(RT_FRAMES == RT_FRAMES_NEAR + RT_FRAMES_FAR, "frames of a thread");

#endif
