import socket

mode = input()
if mode == "hello":
    print("hello, world")
elif mode == "crash":
    print(1 // 0)
elif mode == "loop":
    while True:
        pass
elif mode == "memory":
    kept = []
    while True:
        kept.append(b"x" * 2**20)
elif mode == "flood":
    while True:
        print("x" * 999)
elif mode == "network":
    try:
        socket.create_connection(("192.0.2.1", 80))
        print("connected")
    except OSError:
        print("refused")
