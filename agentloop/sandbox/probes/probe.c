#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int main(void) {
    char mode[16] = "";
    if (scanf("%15s", mode) != 1) return 2;
    if (!strcmp(mode, "hello")) puts("hello, world");
    if (!strcmp(mode, "crash")) *(volatile int *)8 = 1;
    volatile int on = 1;
    if (!strcmp(mode, "loop")) while (on) {}
    if (!strcmp(mode, "memory")) while (on) memset(malloc(1 << 20), 1, 1 << 20);
    if (!strcmp(mode, "flood")) while (on) puts("a line of text that comes again and again and again");
    if (!strcmp(mode, "network")) {
        struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(80)};
        inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        puts(fd >= 0 && !connect(fd, (struct sockaddr *)&there, sizeof there) ? "connected" : "refused");
    }
}
