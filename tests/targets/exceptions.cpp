// SPDX-License-Identifier: Apache-2.0 OR MIT
// Exceptions that leave traced calls.
#include "harness.h"

#include <stdexcept>

namespace {

constexpr int ROUNDS = 200;

struct Descent {
	int depth;	  // calls of visit still to make before the throw
	int catch_at;	  // depth at which a frame catches and goes on
	int rethrow_at;	  // depth at which a frame catches and throws again
	bool guarded;	  // whether each frame has an object whose destructor calls leaf
};

struct Guard {
	bool active;
	~Guard()
	{
		if (active)
			leaf(1);
	}
};

void descend(void *argument)
{
	Descent descent = *static_cast<Descent *>(argument);
	Guard guard{descent.guarded};
	int here = descent.depth--;

	if (here == 0)
		throw std::runtime_error("bottom");
	try {
		visit(descend, &descent);
	} catch (const std::runtime_error &) {
		if (here == descent.rethrow_at)
			throw;
		if (here != descent.catch_at)
			std::abort();
	}
}

// As descend, but without a handler of its own.
void fall(void *argument)
{
	Descent descent = *static_cast<Descent *>(argument);
	Guard guard{descent.guarded};

	if (descent.depth-- == 0)
		throw std::runtime_error("bottom");
	visit(fall, &descent);
}

void run(void (*body)(void *), Descent descent)
{
	int caught = 0;

	for (int i = 0; i < ROUNDS; i++) {
		try {
			visit(body, &descent);
		} catch (const std::runtime_error &error) {
			caught++;
		}
		leaf(0);
	}
	dprintf(STDOUT_FILENO, "caught %d\n", caught);
}

// A round is two calls, so its calls are told round by round.
void tell(const char *round)
{
	for (int i = 0; i < ROUNDS; i++)
		truth("%s", round);
}

void caught_outside()
{
	run(fall, {2, -1, -1, false});
	tell("visit!(visit!(visit!)) leaf");
}

void caught_inside()
{
	run(descend, {1, 1, -1, false});
	tell("visit(visit!) leaf");
}

void rethrown()
{
	run(descend, {1, -1, 1, false});
	tell("visit!(visit!) leaf");
}

void destructors()
{
	run(fall, {2, -1, -1, true});
	tell("visit!(visit!(visit!(leaf) leaf) leaf) leaf");
}

void deep()
{
	run(fall, {40, -1, -1, false});

	char calls[1024] = "";

	for (int i = 0; i <= 40; i++)
		strcat(calls, i < 40 ? "visit!(" : "visit!");
	memset(calls + strlen(calls), ')', 40);
	strcat(calls, " leaf");
	tell(calls);
}

void catch_and_go_deeper(void *argument)
{
	Descent descent = *static_cast<Descent *>(argument);

	try {
		visit(fall, &descent);
	} catch (const std::runtime_error &) {
		leaf_far_below(0);
	}
}

void deeper_after()
{
	Descent descent = {2, -1, -1, false};

	for (int i = 0; i < ROUNDS; i++)
		visit(catch_and_go_deeper, &descent);
	truth("visit*%d(visit!(visit!(visit!)) leaf)", ROUNDS);
}

const scenario scenarios[] = {
	{"caught_outside", caught_outside}, {"caught_inside", caught_inside}, {"rethrown", rethrown},
	{"destructors", destructors},	    {"deep", deep},		    {"deeper_after", deeper_after},
};

} // namespace

SCENARIOS(scenarios)
