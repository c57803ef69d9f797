# Fibers and threads; exceptions leave calls of the interpreter by longjmp.
$stdout.sync = true
puts "ready #{Process.pid}"
$stdin.gets

sum = 0
100.times do
  fiber = Fiber.new do
    20.times { |i| Fiber.yield i }
    nil
  end
  while (value = fiber.resume)
    sum += value
  end
end
caught = 0
500.times do
  begin
    Integer("x")
  rescue ArgumentError
    caught += 1
  end
end
threads = 4.times.map { |n| Thread.new { (1..200).sum { |i| (i * n).to_s.size } } }
puts [sum, caught, *threads.map(&:value)].join(" ")
# Each fiber is entered 21 times and left as often, the last time for ever.
puts "truth coroutine_transfer 4200 100"
