;; Continuations that are entered many times, exceptions, and code that is compiled while it runs.
(display "ready ") (display (getpid)) (newline) (force-output)
((@ (ice-9 rdelim) read-line))
(define (loop n sum)
  (if (= n 0)
      sum
      (loop (- n 1)
            (+ sum
               (call/cc (lambda (k) (for-each (lambda (x) (if (> x 3) (k x))) '(1 2 3 4 5)) 0))
               (catch 'wrong (lambda () (throw 'wrong 2)) (lambda (key value) value))))))
(display (loop 2000 0)) (newline)
