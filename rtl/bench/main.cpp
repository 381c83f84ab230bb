// Drives the sequencer with vectors and holds it against them, byte by byte: random back-pressure on both sides from a
// seed, random bytes where the bus says that there are none, and a run without any stall in which every cycle must bring a
// beat.
//
//   sequencer_bench VECTORS SEED..      0 is the run without stalls
//
// VECTORS: "MRSV", function u16, rows u16, row bytes u16, outer u16, packets u32; for each packet: time u64, interface u16,
// link u16, wire_len u32, length u32, expected length u32, software u8, step u8, then the packet and the expected carrier.
// All numbers are little-endian.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vsequencer.h"
#include "verilated.h"

namespace {

constexpr int BUS = 128;
constexpr int WORDS = BUS / 4;

struct Packet {
    uint64_t time;
    uint16_t interface;
    uint16_t link;
    uint32_t wire_len;
    bool software;
    bool step;
    std::vector<uint8_t> bytes;
    std::vector<uint8_t> expected;
};

struct Vectors {
    uint16_t function, rows, row_bytes, outer;
    std::vector<Packet> packets;
};

// SplitMix64 (Steele, Lea, Flood: OOPSLA '14).
struct Rng {
    uint64_t state;
    uint64_t bits() {
        state += 0x9e3779b97f4a7c15;
        uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    uint64_t below(uint64_t bound) { return bits() % bound; }
};

[[noreturn]] void fail(const std::string& what) {
    std::printf("FAILED: %s\n", what.c_str());
    std::exit(1);
}

class Reader {
  public:
    explicit Reader(const char* path) : file_(std::fopen(path, "rb")) {
        if (file_ == nullptr) fail(std::string("can't open ") + path);
    }
    ~Reader() { std::fclose(file_); }
    void read(void* to, size_t length) {
        if (length != 0 && std::fread(to, 1, length, file_) != length) fail("the vectors end too early");
    }
    template <typename T>
    T number() {
        T value;
        read(&value, sizeof value);
        return value;
    }

  private:
    std::FILE* file_;
};

Vectors load(const char* path) {
    Reader in(path);
    char magic[4];
    in.read(magic, 4);
    if (std::memcmp(magic, "MRSV", 4) != 0) fail(std::string(path) + " holds no vectors");
    Vectors vectors;
    vectors.function = in.number<uint16_t>();
    vectors.rows = in.number<uint16_t>();
    vectors.row_bytes = in.number<uint16_t>();
    vectors.outer = in.number<uint16_t>();
    vectors.packets.resize(in.number<uint32_t>());
    for (Packet& packet : vectors.packets) {
        packet.time = in.number<uint64_t>();
        packet.interface = in.number<uint16_t>();
        packet.link = in.number<uint16_t>();
        packet.wire_len = in.number<uint32_t>();
        packet.bytes.resize(in.number<uint32_t>());
        packet.expected.resize(in.number<uint32_t>());
        packet.software = in.number<uint8_t>() != 0;
        packet.step = in.number<uint8_t>() != 0;
        in.read(packet.bytes.data(), packet.bytes.size());
        in.read(packet.expected.data(), packet.expected.size());
    }
    return vectors;
}

// How often a side stalls: never, now and then, mostly, in long pauses.
class Stalls {
  public:
    Stalls(Rng& rng, bool never) : rng_(rng), never_(never) {}
    bool stalled() {
        if (never_) return false;
        if (left_ == 0) {
            left_ = 1 + rng_.below(400);
            of_eight_ = rng_.below(9);
        }
        left_--;
        return rng_.below(8) < of_eight_;
    }

  private:
    Rng& rng_;
    bool never_;
    uint64_t left_ = 0, of_eight_ = 0;
};

struct Run {
    uint64_t cycles = 0, beats_in = 0, beats_out = 0, first_out = 0, last_out = 0, idle_between = 0;
};

class Bench {
  public:
    Bench(const Vectors& vectors, uint64_t seed)
        : vectors_(vectors), rng_{seed}, unstalled_(seed == 0), in_(rng_, unstalled_), out_(rng_, unstalled_),
          top_(std::make_unique<Vsequencer>()) {}

    Run run() {
        reset();
        const uint64_t limit = 1000 + 400 * total_beats();
        while (received_ < vectors_.packets.size()) {
            if (run_.cycles > limit) fail(where() + ": nothing comes any more");
            cycle();
        }
        uint64_t software = 0, steps = 0;
        for (const Packet& packet : vectors_.packets) {
            software += packet.software;
            steps += packet.step;
        }
        if (top_->packets != vectors_.packets.size()) fail("the count of packets is wrong");
        if (top_->software_packets != software) {
            fail("software packets: " + std::to_string(top_->software_packets) + ", expected " + std::to_string(software));
        }
        if (top_->step_packets != steps) fail("the count of steps is wrong");
        if (unstalled_ && run_.idle_between != 0) {
            fail(std::to_string(run_.idle_between) + " cycles without a beat though nothing stalled");
        }
        return run_;
    }

  private:
    void reset() {
        top_->rst = 1;
        top_->s_valid = 0;
        top_->m_ready = 0;
        for (int i = 0; i < 4; i++) edge();
        top_->rst = 0;
    }

    void edge() {
        top_->clk = 0;
        top_->eval();
        top_->clk = 1;
        top_->eval();
    }

    void cycle() {
        offer();
        top_->m_ready = !out_.stalled();
        top_->clk = 0;
        top_->eval();
        const bool takes = top_->s_valid && top_->s_ready;
        const bool gives = top_->m_valid && top_->m_ready;
        hold_still();
        if (gives) collect();
        if (!gives && run_.beats_out != 0) run_.idle_between++;
        top_->clk = 1;
        top_->eval();
        run_.cycles++;
        if (takes) {
            run_.beats_in++;
            offered_ = false;
            at_ += BUS;
            if (at_ >= vectors_.packets[sent_].bytes.size()) {
                sent_++;
                at_ = 0;
            }
        }
    }

    // Puts the next beat on the bus. What was offered stays until it is taken, as AXI-Stream wants it.
    void offer() {
        if (sent_ == vectors_.packets.size()) {
            top_->s_valid = 0;
            return;
        }
        if (offered_) return;
        if (in_.stalled()) {
            top_->s_valid = 0;
            scramble(0);
            return;
        }
        offered_ = true;
        const Packet& packet = vectors_.packets[sent_];
        const size_t length = std::min<size_t>(BUS, packet.bytes.size() - at_);
        scramble(length);
        std::memcpy(&top_->s_data[0], packet.bytes.data() + at_, length);
        for (int word = 0; word < 4; word++) {
            const int bits = static_cast<int>(length) - 32 * word;
            top_->s_keep[word] = bits >= 32 ? 0xffffffffU : bits <= 0 ? 0 : (1U << bits) - 1;
        }
        top_->s_valid = 1;
        top_->s_last = at_ + BUS >= packet.bytes.size();
        top_->now = at_ == 0 ? packet.time : rng_.bits() >> 2;
        top_->s_interface = at_ == 0 ? packet.interface : rng_.bits();
        top_->s_link = at_ == 0 ? packet.link : rng_.bits();
        top_->s_wire_len = at_ == 0 ? packet.wire_len : rng_.bits();
    }

    // Nobody may rely on what the bus doesn't vouch for.
    void scramble(size_t from) {
        for (int word = static_cast<int>(from / 4); word < WORDS; word++) top_->s_data[word] = rng_.bits();
        if (from == 0) {
            for (int word = 0; word < 4; word++) top_->s_keep[word] = rng_.bits();
            top_->s_last = rng_.bits() & 1;
        }
    }

    // A beat that was offered and not taken must not change.
    void hold_still() {
        if (waiting_ && (!top_->m_valid || std::memcmp(held_, &top_->m_data[0], BUS) != 0)) {
            fail(where() + ": a beat changed before it was taken");
        }
        waiting_ = top_->m_valid && !top_->m_ready;
        if (waiting_) std::memcpy(held_, &top_->m_data[0], BUS);
    }

    void collect() {
        run_.beats_out++;
        const std::vector<uint8_t>& expected = vectors_.packets[received_].expected;
        if (expected.size() <= got_) fail(where() + ": more comes than is expected");
        const size_t length = std::min<size_t>(BUS, expected.size() - got_);
        uint8_t beat[BUS];
        std::memcpy(beat, &top_->m_data[0], BUS);
        for (size_t i = 0; i < BUS; i++) {
            const bool kept = top_->m_keep[i / 32] >> (i % 32) & 1;
            if (kept != (i < length)) fail(where() + ": keep is wrong for byte " + std::to_string(got_ + i));
            if (kept && beat[i] != expected[got_ + i]) {
                char text[96];
                std::snprintf(text, sizeof text, ": byte %zu is %02x, expected %02x", got_ + i, beat[i], expected[got_ + i]);
                fail(where() + text);
            }
        }
        got_ += length;
        if (top_->m_last != (got_ == expected.size())) fail(where() + ": last is wrong");
        if (top_->m_last) {
            received_++;
            got_ = 0;
        }
    }

    uint64_t total_beats() const {
        uint64_t beats = 0;
        for (const Packet& packet : vectors_.packets) beats += 1 + packet.expected.size() / BUS;
        return beats;
    }

    std::string where() const { return "packet " + std::to_string(received_) + ", cycle " + std::to_string(run_.cycles); }

    const Vectors& vectors_;
    Rng rng_;
    bool unstalled_;
    Stalls in_, out_;
    std::unique_ptr<Vsequencer> top_;
    Run run_;
    size_t sent_ = 0, at_ = 0, received_ = 0, got_ = 0;
    bool offered_ = false, waiting_ = false;
    uint8_t held_[BUS];
};

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) fail("usage: sequencer_bench VECTORS SEED..");
    const Vectors vectors = load(arguments[1]);
    uint64_t software = 0, steps = 0;
    for (const Packet& packet : vectors.packets) {
        software += packet.software;
        steps += packet.step;
    }
    uint64_t cycles = 0;
    for (int i = 2; i < count; i++) {
        const uint64_t seed = std::strtoull(arguments[i], nullptr, 10);
        // Registers begin with anything: only a reset may be relied on.
        Verilated::randReset(2);
        Verilated::randSeed(1 + static_cast<int>(seed));
        std::printf("seed %s: ", arguments[i]);
        std::fflush(stdout);
        const Run run = Bench(vectors, seed).run();
        cycles += run.cycles;
        std::printf("%llu cycles; ", static_cast<unsigned long long>(run.cycles));
    }
    std::printf("passed: %zu packets, %llu take a step, %llu for software\n", vectors.packets.size(),
                static_cast<unsigned long long>(steps), static_cast<unsigned long long>(software));
    return 0;
}
