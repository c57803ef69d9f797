// SPDX-License-Identifier: Apache-2.0 OR MIT
// Scenarios that are played some times, so that a tracer has met each place that they call from, and of
// callers that only return the next one each time; and then, behind the line
//
//     settled TIME     (CLOCK_MONOTONIC, ns)
//
// some rounds more, which must be on record with every ending and duration. The program's exit status
// is a sum of what the rounds gave.
#pragma once

#include "harness.h"
#include "ways.h"

// Of callers that only return, each call makes one more known, and the first rounds have six above each other.
enum { ROUNDS = 20, FIRST_ROUNDS = 9, SETTLE_US = 40000 };

struct round {
	const char *name;
	int (*body)(void);
	const char *calls; // of one round; NULL where the body tells them itself
};

// Apart, so that all rounds are called from one place.
static __attribute__((noinline)) int play_round(const struct round *round)
{
	int sum = round->body();

	if (round->calls)
		truth("%s", round->calls);
	return sum;
}

static int play(int argc, char **argv, const struct round *rounds, int count)
{
	const struct round *round = rounds;
	int sum = 0;

	while (argc > 1 && round < rounds + count && strcmp(argv[1], round->name) != 0)
		round++;
	if (argc < 2 || round == rounds + count) {
		fprintf(stderr, "usage: %s SCENARIO [wait]\n", argv[0]);
		return 2;
	}
	wait_for_line(argc, argv);
	for (int i = 0; i < FIRST_ROUNDS; i++) {
		sum += play_round(round);
		usleep(SETTLE_US);
	}
	span_count = 0;
	dprintf(STDOUT_FILENO, "settled %lld\n", now());
	for (int i = 0; i < ROUNDS; i++)
		sum += play_round(round);
	for (int i = 0; i < span_count; i++)
		dprintf(STDOUT_FILENO, "span %ld %s %s %lld %lld\n", spans[i].thread, spans[i].name,
			spans[i].is_inside ? "inside" : "outside", spans[i].begin, spans[i].end);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	return sum % 64;
}
