// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls a function of the C library from methods, templates, and in front of exceptions.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#define APART __attribute__((noinline))

static volatile unsigned long state = 54321;
static volatile long sum;

static unsigned draw(unsigned below)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (state >> 33) % below;
}

static inline __attribute__((always_inline)) void ask()
{
	sum += getppid();
	sum = sum + 1;
}

struct Node {
	virtual ~Node() = default;
	virtual void visit(int depth) = 0;
};

template <int SIZE> struct Sized : Node {
	std::string name;
	std::unique_ptr<Node> next;

	APART void visit(int depth) override;
};

static APART std::unique_ptr<Node> make(int depth)
{
	ask();
	std::unique_ptr<Node> made;
	switch (draw(3)) {
	case 0:
		made = std::make_unique<Sized<8>>();
		break;
	case 1:
		made = std::make_unique<Sized<200>>();
		break;
	default:
		made = std::make_unique<Sized<4096>>();
	}
	sum = sum + depth;
	return made;
}

static APART void fail(int depth)
{
	ask();
	if (depth % 2)
		throw std::string("odd");
}

template <int SIZE> void Sized<SIZE>::visit(int depth)
{
	volatile char bytes[SIZE];

	bytes[depth % SIZE] = 1;
	name.assign(SIZE % 30, 'x');
	if (depth > 0) {
		next = make(depth);
		next->visit(depth - 1);
	}
	try {
		fail(static_cast<int>(draw(100)));
	} catch (const std::string &what) {
		sum = sum + what.size();
		ask();
	}
	sum = sum + bytes[depth % SIZE];
}

struct Order {
	bool operator()(int left, int right) const
	{
		ask();
		return left < right;
	}
};

static APART void sorts()
{
	std::vector<int> values = { 5, 3, 4, 1, 2 };
	std::sort(values.begin(), values.end(), Order());
	sum = sum + values[0];
}

int main()
{
	for (int i = 0; i < 400; i++) {
		make(i)->visit(static_cast<int>(draw(10)));
		sorts();
		// Until return sites are in place.
		if (i < 50)
			usleep(20000);
	}
	return 0;
}
