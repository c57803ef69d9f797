// SPDX-License-Identifier: Apache-2.0 OR MIT
// Exceptions that leave calls by ways that exceptions.cpp does not go.
#include "rounds.h"

#include <csignal>
#include <string>

namespace {

constexpr int DEEPEST = 20;
constexpr int LONG_US = 20000;

struct Guard {
	~Guard()
	{
		leaf(1);
	}
};

// Throws from so many calls below; each has an object to destroy.
void fall(void *depth)
{
	Guard guard;
	int here = *static_cast<int *>(depth);

	if (here == 0)
		throw here;
	here--;
	visit(fall, &here);
}

// As fall, but each catches and throws again.
void stumble(void *depth)
{
	int here = *static_cast<int *>(depth);

	if (here == 0)
		throw here;
	here--;
	try {
		visit(stumble, &here);
	} catch (int) {
		leaf(2);
		throw;
	}
}

// For each depth a call of visit, left by what is thrown that many calls below it, and a call from where
// that is caught.
int each_depth(void (*body)(void *), const char *innermost, const char *others)
{
	int caught = 0;

	for (int depth = 1; depth <= DEEPEST; depth++) {
		try {
			visit(body, &depth);
		} catch (int) {
			caught += depth;
		}
		std::string calls = innermost;
		for (int i = 0; i < depth; i++)
			calls = "visit!(" + calls + others;
		leaf(0);
		truth("%s leaf", calls.c_str());
	}
	return caught;
}

int destructors_at_each_depth()
{
	return each_depth(fall, "visit!(leaf)", " leaf)");
}

int rethrown_at_each_depth()
{
	return each_depth(stumble, "visit!", " leaf)");
}

int throws(void *)
{
	throw 3;
}

int tail_thrown()
{
	try {
		return w_tail_visit(throws, nullptr);
	} catch (int thrown) {
		return w_leaf(thrown);
	}
}

int comparison(const void *, const void *)
{
	throw 5;
}

int searches(void *)
{
	int key = 1;

	return bsearch(&key, &key, 1, sizeof(key), comparison) != nullptr;
}

int thrown_through_c_library()
{
	try {
		return w_call(searches, nullptr);
	} catch (int thrown) {
		return w_leaf(thrown);
	}
}

int catches(void *)
{
	return tail_thrown();
}

int throw_number(int number)
{
	throw number;
}

int be_busy(void *)
{
	long long begin = now();

	while (now() - begin < BUSY_NS)
		;
	return 1;
}

// Any function, or what it is given.
template <typename Function> void *any(Function *function)
{
	return reinterpret_cast<void *>(function);
}

__attribute__((noipa)) int next_to(int n)
{
	return n + 1;
}

// Calls one function or the other from one place, and does more than return then. It catches nothing.
__attribute__((noipa)) int between(void *callee, void *argument)
{
	return next_to(reinterpret_cast<int (*)(void *, long)>(callee)(argument, 1)) + 1;
}

// Goes on for long, and calls nothing that is traced, once it has said when it landed.
__attribute__((noipa)) int land(void *callee, void *argument)
{
	long long begin = now();

	try {
		return OPAQUE(between(callee, argument)) + 1;
	} catch (int thrown) {
		u_note("w_tail_indirect", 0, begin, now());
		return usleep(LONG_US) + thrown;
	}
}

// Who throws ends in a jump to what is not known, so it could have called what enters there next.
int thrown_over_callers()
{
	return land(any(w_tail_indirect), any(throw_number)) + land(any(w_call), any(be_busy));
}

struct Caller {
	~Caller()
	{
		between(any(w_call), any(be_busy));
	}
};

int caller_is_destroyed()
{
	try {
		Caller caller;

		return between(any(w_tail_indirect), any(throw_number));
	} catch (int thrown) {
		return thrown;
	}
}

int caught_inside()
{
	return TIMED("w_call", w_call(catches, nullptr));
}

void throw_from_handler(int number)
{
	throw number;
}

int thrown_from_handler()
{
	struct sigaction action = {};

	action.sa_handler = throw_from_handler;
	action.sa_flags = SA_NODEFER;
	sigaction(SIGSEGV, &action, nullptr);
	try {
		return w_deref(nullptr, 4);
	} catch (int thrown) {
		return w_leaf(thrown);
	}
}

void throws_and_returns_nothing(void *)
{
	throw 7;
}

int replaced()
{
	try {
		w_visit(throws_and_returns_nothing, nullptr);
		return 0;
	} catch (int thrown) {
		return w_leaf(thrown);
	}
}

const struct round rounds[] = {
	{"destructors_at_each_depth", destructors_at_each_depth, nullptr},
	{"rethrown_at_each_depth", rethrown_at_each_depth, nullptr},
	{"tail_thrown", tail_thrown, "w_tail_visit!(w_call!) w_leaf"},
	{"thrown_through_c_library", thrown_through_c_library, "w_call! w_leaf"},
	{"thrown_over_callers", thrown_over_callers, "w_tail_indirect! w_call"},
	{"caller_is_destroyed", caller_is_destroyed, "w_tail_indirect! w_call"},
	{"caught_inside", caught_inside, "w_call(w_tail_visit!(w_call!) w_leaf)"},
	{"thrown_from_handler", thrown_from_handler, "w_deref! w_leaf"},
	{"replaced", replaced, "w_visit! w_leaf"},
};

} // namespace

int main(int argc, char **argv)
{
	return play(argc, argv, rounds, sizeof(rounds) / sizeof(rounds[0]));
}
