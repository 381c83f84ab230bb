// The sequencer: numbers and stamps each packet as it comes in, puts the records of the ROWS packets before it in front,
// and remembers its own (state-compute replication, section 3.3). FUNCTION says whose records; records.v has the numbers.
//
//   packets --+--> [beats] ---------------------------------> prepender --> packets with their history
//             +--> [stamps: number, time, interface, ..] ----> |  ring
//             +--> headers --> record --> [records] ---------> |
//
// The buffers are as deep as the parser is long, twice over, so that a packet's record is there when its turn comes and
// nothing waits for it.
module sequencer #(
    parameter FUNCTION = 0,
    parameter ROWS = 16,
    parameter RECORD_BYTES = 6,
    parameter OUTER = 0,
    parameter ROW_BYTES = 8 + RECORD_BYTES
) (
    input  wire          clk,
    input  wire          rst,
    // The clock that packets are stamped by, in nanoseconds. Never goes back.
    input  wire [61:0]   now,
    // Packets. The sideband belongs to the first beat; `s_wire_len` is at least as much as comes over the bus.
    input  wire          s_valid,
    output wire          s_ready,
    input  wire [1023:0] s_data,
    input  wire [127:0]  s_keep,
    input  wire          s_last,
    input  wire [15:0]   s_interface,
    input  wire [15:0]   s_link,
    input  wire [31:0]   s_wire_len,
    // Packets with their history.
    output wire          m_valid,
    input  wire          m_ready,
    output wire [1023:0] m_data,
    output wire [127:0]  m_keep,
    output wire          m_last,
    // Packets taken in, those of them whose record only software can make, and those whose record takes a step.
    output wire [63:0]   packets,
    output reg  [63:0]   software_packets,
    output reg  [63:0]   step_packets
);
    localparam DEPTH_LOG2 = 5;

    reg first;
    reg [63:0] number;
    assign packets = number;
    wire beats_ready, stamps_ready;
    assign s_ready = beats_ready && stamps_ready;
    wire taken = s_valid && s_ready;
    always @(posedge clk) begin
        if (rst) begin
            first <= 1'b1;
            number <= 64'd0;
        end else if (taken) begin
            first <= s_last;
            if (first) number <= number + 64'd1;
        end
    end

    wire beat_valid, beat_ready, beat_last;
    wire [1023:0] beat_data;
    wire [127:0] beat_keep;
    fifo #(.WIDTH(1153), .DEPTH_LOG2(DEPTH_LOG2)) beats (
        .clk(clk), .rst(rst), .in_valid(taken), .in_ready(beats_ready), .in({s_last, s_keep, s_data}),
        .out_valid(beat_valid), .out_ready(beat_ready), .out({beat_last, beat_keep, beat_data})
    );

    wire stamp_valid, record_valid, pop;
    wire [63:0] stamp_number;
    wire [61:0] stamp_time;
    wire [15:0] stamp_interface, stamp_link;
    wire [31:0] stamp_wire_len;
    fifo #(.WIDTH(190), .DEPTH_LOG2(DEPTH_LOG2)) stamps (
        .clk(clk), .rst(rst), .in_valid(taken && first), .in_ready(stamps_ready),
        .in({number, now, s_interface, s_link, s_wire_len}),
        .out_valid(stamp_valid), .out_ready(pop),
        .out({stamp_number, stamp_time, stamp_interface, stamp_link, stamp_wire_len})
    );

    wire made_valid, made_step, made_software;
    wire [RECORD_BYTES*8-1:0] made;
    records #(.FUNCTION(FUNCTION), .RECORD_BYTES(RECORD_BYTES)) records (
        .clk(clk), .rst(rst), .beat(taken), .first(first), .last(s_last), .data(s_data), .keep(s_keep),
        .in_interface(s_interface), .in_link(s_link), .in_wire_len(s_wire_len),
        .valid(made_valid), .step(made_step), .software(made_software), .record(made)
    );
    // Never full: a packet's beats leave their buffer, of the same depth, only after its record has left this one.
    wire step, software, unused_ready;
    wire [RECORD_BYTES*8-1:0] record;
    fifo #(.WIDTH(2 + RECORD_BYTES * 8), .DEPTH_LOG2(DEPTH_LOG2)) made_records (
        .clk(clk), .rst(rst), .in_valid(made_valid), .in_ready(unused_ready), .in({made_step, made_software, made}),
        .out_valid(record_valid), .out_ready(pop), .out({step, software, record})
    );
    always @(posedge clk) begin
        if (rst) begin
            software_packets <= 64'd0;
            step_packets <= 64'd0;
        end else begin
            if (pop && software) software_packets <= software_packets + 64'd1;
            if (pop && step) step_packets <= step_packets + 64'd1;
        end
    end

    prepender #(.ROWS(ROWS), .ROW_BYTES(ROW_BYTES), .OUTER(OUTER)) prepender (
        .clk(clk), .rst(rst),
        .s_valid(beat_valid), .s_ready(beat_ready), .s_data(beat_data), .s_keep(beat_keep), .s_last(beat_last),
        .r_valid(record_valid && stamp_valid), .r_ready(pop), .r_row({step, software, stamp_time, record}),
        .r_flags({7'd0, software}), .r_seq(stamp_number), .r_time({2'd0, stamp_time}),
        .r_interface(stamp_interface), .r_link(stamp_link), .r_wire_len(stamp_wire_len),
        .m_valid(m_valid), .m_ready(m_ready), .m_data(m_data), .m_keep(m_keep), .m_last(m_last)
    );
endmodule
