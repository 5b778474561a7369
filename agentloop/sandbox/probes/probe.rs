use std::io::Write;
use std::net::TcpStream;

fn main() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    match line.trim() {
        "hello" => println!("hello, world"),
        "crash" => println!("{}", [1][line.len()]),
        "loop" => loop {
            std::hint::black_box(0);
        },
        "memory" => {
            let mut kept = Vec::new();
            loop {
                kept.push(vec![1u8; 1 << 20]);
            }
        }
        "flood" => loop {
            let _ = std::io::stdout().write_all(b"a line of text that comes again and again and again\n");
        },
        "network" => println!("{}", if TcpStream::connect("192.0.2.1:80").is_ok() { "connected" } else { "refused" }),
        _ => {}
    }
}
