import java.io.IOException;
import java.net.Socket;
import java.util.ArrayList;
import java.util.Scanner;

public class Probe {
    public static void main(String[] args) {
        switch (new Scanner(System.in).next()) {
            case "hello" -> System.out.println("hello, world");
            case "crash" -> System.out.println(1 / args.length);
            case "loop" -> { while (true) {} }
            case "memory" -> {
                var kept = new ArrayList<byte[]>();
                while (true) kept.add(new byte[1 << 20]);
            }
            case "flood" -> { while (true) System.out.println("a line of text that comes again and again and again"); }
            case "network" -> {
                try (Socket socket = new Socket("192.0.2.1", 80)) {
                    System.out.println("connected");
                } catch (IOException error) {
                    System.out.println("refused");
                }
            }
        }
    }
}
