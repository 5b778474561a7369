"""Conformance cases of the compiled languages: what right programs use, and each way in which wrong ones end.

A program does what the first word of its input says, so that one compilation serves many tests. A case is a job with
what each of its tests must come out as: an outcome, and a detail where it is given.
"""

from __future__ import annotations

from agentloop.types import Job, Limits, Test

MIB = 2**20
LIMITS = Limits(cpu=5.0, wall=60.0, memory=512 * MIB, processes=24)
Wanted = tuple[str, str, str]
"""What the program reads, what it must print, the outcome (with a detail)."""

_C = r"""
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static long deep(long n) { volatile char room[64]; room[n % 64] = 1; return n ? deep(n - 1) + room[n % 64] : 0; }
static void *work(void *at) { *(long *)at += 7; return 0; }
int main(void) {
    char *line = 0; size_t size = 0;
    if (getline(&line, &size, stdin) < 0) return 9;
    char *mode = strdup(strtok(line, "\n"));
    if (!strcmp(mode, "math")) printf("%.3f %.3f\n", sqrt(2.0), M_PI);
    if (!strcmp(mode, "deep")) printf("%ld\n", deep(1000000));
    if (!strcmp(mode, "endless")) printf("%ld\n", deep(1L << 40));
    if (!strcmp(mode, "abort")) abort();
    if (!strcmp(mode, "divide")) { volatile int zero = 0; printf("%d\n", 7 / zero); }
    if (!strcmp(mode, "thread")) {
        pthread_t thread; long sum = 0;
        for (int i = 0; i < 9; i++) { pthread_create(&thread, 0, work, &sum); pthread_join(thread, 0); }
        printf("%ld\n", sum);
    }
    if (!strcmp(mode, "vfork")) {  // a child with the very memory of its parent
        char *room = memset(malloc(300 << 20), 1, 300 << 20); int status, child = vfork();
        if (!child) { usleep(30000); _exit(7); }
        waitpid(child, &status, 0);
        printf("%d\n", room[5] + WEXITSTATUS(status));
    }
    return !strcmp(mode, "status") ? 3 : 0;
}
"""
_CPP = r"""
#include <bits/stdc++.h>
using namespace std;
struct Base { virtual ~Base() = default; virtual int id() const { return 1; } };
struct Derived : Base { int id() const override { return 2; } };
static long deep(long n) { volatile char room[64]; room[n % 64] = 1; return n ? deep(n - 1) + room[n % 64] : 0; }
int main() {
    string mode; cin >> mode;
    if (mode == "library") {
        map<string, vector<int>> all{{"b", {2, 3}}, {"a", {1}}};
        for (const auto &[name, numbers] : all) cout << name << accumulate(numbers.begin(), numbers.end(), 0) << ' ';
        optional<int> none; unique_ptr<Base> one = make_unique<Derived>(); __int128 big = (__int128)1 << 100;
        cout << none.value_or(7) << one->id() << ' ' << (long)(big >> 98) << endl;
    }
    if (mode == "read") { long sum = 0, x; while (cin >> x) sum += x; cout << sum << "\n"; }
    if (mode == "deep") cout << deep(1000000) << endl;
    if (mode == "endless") cout << deep(1L << 40) << endl;
    if (mode == "threads") {
        atomic<int> sum{0}; vector<thread> all;
        for (int i = 1; i <= 8; i++) all.emplace_back([&sum, i] { sum += i; });
        for (auto &each : all) each.join();
        cout << sum << endl;
    }
    if (mode == "status") exit(3);
}
"""
_JAVA = r"""
package some.where;

import java.util.*;
import java.util.stream.*;

interface Shape { double area(); }
record Square(double side) implements Shape { public double area() { return side * side; } }
/* public class Wrong { public static void main(String[] args) {} } */
public class Outer {
    static class Mine extends RuntimeException { Mine() { super("class Wrong {"); } }
    static long deep(long n) { return n == 0 ? 0 : 1 + deep(n - 1); }
    public static void main(String[] args) throws Exception {
        Scanner in = new Scanner(System.in);
        switch (in.next()) {
            case "library":
                System.out.println(IntStream.range(0, 5).boxed().map(String::valueOf).collect(Collectors.joining(","))
                    + " " + new Square(2).area());
                break;
            case "read": { long s = 0; while (in.hasNextLong()) s += in.nextLong(); System.out.println(s); break; }
            case "deep": System.out.println(deep(200_000)); break;
            case "endless": System.out.println(deep(1L << 40)); break;
            case "own": throw new Mine();
            case "threads": {
                long[] sum = new long[1]; List<Thread> all = new ArrayList<>();
                for (int i = 1; i <= 8; i++) {
                    int own = i; all.add(new Thread(() -> { synchronized (sum) { sum[0] += own; } }));
                }
                for (Thread each : all) each.start();
                for (Thread each : all) each.join();
                System.out.println(sum[0]); break;
            }
            case "temp": System.out.println(java.nio.file.Files.createTempFile("a", "b").toFile().exists()); break;
            case "status": System.exit(3);
        }
    }
}
"""
_JAVA_OTHER = r"""
class Helper { static String word() { return "found"; } }
class Solution { static final String TEXT = "public class Text { }"; }
class Runner { static public void main(final String... args) { System.out.println(Helper.word()); } }
"""
# Small frames of compiled code: most memory to unwind.
_JAVA_ENDLESS = r"""
public class Endless {
    static int f(int x) { return f(x + 1) + 1; }
    public static void main(String[] args) { System.out.println(f(0)); }
}
"""
_RUST = r"""
use std::collections::BTreeMap;
use std::io::{self, Read};
#[inline(never)]
fn deep(n: u64) -> u64 { let room = std::hint::black_box([n; 4]); if n == 0 { 0 } else { 1 + deep(room[1] - 1) } }
fn main() -> Result<(), std::num::ParseIntError> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).unwrap();
    let mut words = text.split_whitespace();
    match words.next().unwrap() {
        "library" => {
            let mut all = BTreeMap::new();
            for word in ["b", "a", "b"] { *all.entry(word).or_insert(0) += 1; }
            println!("{all:?}");
        }
        "read" => println!("{}", words.map(|w| w.parse::<i64>().unwrap()).sum::<i64>()),
        "overflow" => {
            let mut x: i32 = words.next().unwrap().parse()?;
            for _ in 0..40 { x *= 3; }
            println!("{x}");
        }
        "error" => println!("{}", "no number".parse::<i32>()?),
        "deep" => println!("{}", deep(1_000_000)),
        "endless" => println!("{}", deep(1 << 40)),
        "threads" => {
            let all: Vec<_> = (1..=8u64).map(|i| std::thread::spawn(move || i)).collect();
            println!("{}", all.into_iter().map(|each| each.join().unwrap()).sum::<u64>());
        }
        "status" => std::process::exit(3),
        _ => {}
    }
    Ok(())
}
"""
_MANY = " ".join(map(str, range(20_000)))
_SUM = str(sum(range(20_000)))
_PROGRAMS: dict[str, list[tuple[str, str, list[Wanted]]]] = {
    "c": [
        ("what C programs use", _C, [
            ("math", "1.414 3.142", "passed"), ("deep", "1000000", "passed"), ("thread", "63", "passed"),
            ("vfork", "8", "passed"), ("status", "", "runtime_error exit 3"), ("abort", "", "runtime_error SIGABRT"),
            ("divide", "", "runtime_error SIGFPE"), ("endless", "", "runtime_error SIGSEGV"),
        ]),
        ("a C function that is nowhere", "int f(void);\nint main(void) { return f(); }\n",
         [("", "", "compile_error undefined reference to `f'")]),
    ],
    "cpp": [
        ("what C++ programs use", _CPP, [
            ("library", "a1 b5 72 4", "passed"), (f"read {_MANY}", _SUM, "passed"), ("deep", "1000000", "passed"),
            ("threads", "36", "passed"), ("status", "", "runtime_error exit 3"),
            ("endless", "", "runtime_error SIGSEGV"),
        ]),
        ("an unknown C++ name", "int main() {\n    return missing;\n}\n",
         [("", "", "compile_error error: \u2018missing\u2019 was not declared in this scope")]),
    ],
    "java": [
        ("what Java programs use", _JAVA, [
            ("library", "0,1,2,3,4 4.0", "passed"), (f"read {_MANY}", _SUM, "passed"), ("deep", "200000", "passed"),
            ("threads", "36", "passed"), ("own", "", "runtime_error Outer$Mine"), ("temp", "true", "passed"),
            ("status", "", "runtime_error exit 3"), ("endless", "", "runtime_error StackOverflowError"),
        ]),
        ("Java's main in a later class", _JAVA_OTHER, [("", "found", "passed")]),
        ("a Java stack that overflows", _JAVA_ENDLESS, [("", "", "runtime_error StackOverflowError")] * 4),
        ("an unknown Java name", "public class A { int x = missing; }",
         [("", "", "compile_error error: cannot find symbol")]),
    ],
    "rust": [
        ("what Rust programs use", _RUST, [
            ("library", '{"a": 1, "b": 2}', "passed"), (f"read {_MANY}", _SUM, "passed"), ("deep", "1000000", "passed"),
            ("threads", "36", "passed"), ("overflow 3", "", "runtime_error panic"), ("overflow 0", "0", "passed"),
            ("error", "", "runtime_error Error"), ("status", "", "runtime_error exit 3"),
            ("endless", "", "runtime_error SIGABRT"),
        ]),
        ("an unknown Rust name", "fn main() {\n    missing();\n}\n",
         [("", "", "compile_error error[E0425]: cannot find function `missing` in this scope")]),
    ],
}  # fmt: skip


def compiled(language: str) -> list[tuple[str, Job, list[str]]]:
    """The cases of one language: name, job, and what each of its tests must come out as."""
    cases = []
    for name, program, wanted in _PROGRAMS[language]:
        tests = [
            Test(stdin.partition(" ")[0] or "run", "stdio", {"stdin": f"{stdin}\n"}, {"stdout": stdout}, "text", "")
            for stdin, stdout, _ in wanted
        ]
        cases.append((name, Job(language, program, tuple(tests), LIMITS), [outcome for *_, outcome in wanted]))
    return cases
