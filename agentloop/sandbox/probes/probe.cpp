#include <arpa/inet.h>
#include <cstring>
#include <iostream>
#include <string>
#include <sys/socket.h>
#include <vector>

int main() {
    std::string mode;
    std::cin >> mode;
    volatile bool on = true;
    if (mode == "hello") std::cout << "hello, world" << std::endl;
    if (mode == "crash") std::vector<int>().at(1) = 1;
    if (mode == "loop") while (on) {}
    if (mode == "memory") for (std::vector<std::string> kept; on;) kept.emplace_back(1 << 20, 'x');
    if (mode == "flood") while (on) std::cout << "a line of text that comes again and again and again\n";
    if (mode == "network") {
        sockaddr_in there{};
        there.sin_family = AF_INET;
        there.sin_port = htons(80);
        inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        bool connected = fd >= 0 && connect(fd, (sockaddr *)&there, sizeof there) == 0;
        std::cout << (connected ? "connected" : "refused") << std::endl;
    }
}
