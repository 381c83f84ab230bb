// The core: puts the ring and a trailer in front of each packet and moves the packet by as much, a fixed number of bytes
// (figures 4a and 4c of state-compute replication). One beat a cycle when nothing stalls.
//
//   [outer Ethernet header, 14 bytes, if OUTER] [row 0] .. [row ROWS-1] [trailer, 32 bytes] [the packet]
//
// The move is wiring: SPLIT bytes of every beat come from the beat before. The ring changes in the cycle that the packet's
// first beat goes out, so the next packet, which can follow a cycle later, carries this one's record.
module prepender #(
    parameter ROWS = 16,
    parameter ROW_BYTES = 14,
    parameter OUTER = 0
) (
    input  wire                   clk,
    input  wire                   rst,
    // Packets. The first byte of a beat is its lowest eight bits; only a packet's last beat may be part full.
    input  wire                   s_valid,
    output wire                   s_ready,
    input  wire [1023:0]          s_data,
    input  wire [127:0]           s_keep,
    input  wire                   s_last,
    // What is known of each packet: one word a packet, first byte of the record on top.
    input  wire                   r_valid,
    output wire                   r_ready,
    input  wire [ROW_BYTES*8-1:0] r_row,
    input  wire [7:0]             r_flags,
    input  wire [63:0]            r_seq,
    input  wire [63:0]            r_time,
    input  wire [15:0]            r_interface,
    input  wire [15:0]            r_link,
    input  wire [31:0]            r_wire_len,
    // Packets with their history.
    output reg                    m_valid,
    input  wire                   m_ready,
    output wire [1023:0]          m_data,
    output reg  [127:0]           m_keep,
    output reg                    m_last
);
    localparam BUS = 128;
    localparam TRAILER = 32;
    localparam HEAD = (OUTER != 0 ? 14 : 0) + ROWS * ROW_BYTES + TRAILER;
    // Beats of history alone, and how much of it the beat has that the packet begins in.
    localparam FULL = HEAD / BUS;
    localparam SPLIT = HEAD % BUS;
    // Where a packet stands: at a beat of history, at its first beat, or behind that.
    localparam integer FIRST = FULL;
    localparam integer BODY = FULL + 1;
    localparam PLACE_BITS = $clog2(FULL + 2);
    localparam [7:0] VERSION = 1;
    localparam [15:0] ROWS16 = ROWS[15:0];
    localparam [15:0] ROW_BYTES16 = ROW_BYTES[15:0];

    reg [PLACE_BITS-1:0] place;
    // What is left of the packet's last beat goes out.
    reg in_tail;
    wire in_first = place == FIRST[PLACE_BITS-1:0];
    wire in_body = place == BODY[PLACE_BITS-1:0];
    wire in_history = !in_first && !in_body;

    // The output register is free, or becomes so in this cycle.
`ifdef FAULT_STALL
    wire advance = 1'b1;
`else
    wire advance = !m_valid || m_ready;
`endif
    wire emits = in_tail || (s_valid && (in_body || r_valid));
    assign s_ready = advance && !in_tail && (in_body || (in_first && r_valid));
    assign r_ready = advance && in_first && s_valid && r_valid;

    // The ring, and the core that the packet is sprayed to: packet j goes to core j mod (ROWS + 1).
    wire [ROWS*ROW_BYTES*8-1:0] rows;
    wire [15:0] index;
    reg [15:0] core;
`ifdef FAULT_EARLY
    // The record is written with the packet's first beat of history, so that the packet carries its own.
    wire write = FULL > 0 ? advance && place == 0 && s_valid && r_valid : r_ready;
`else
    wire write = r_ready;
`endif
    ring #(.ROWS(ROWS), .ROW_BITS(ROW_BYTES * 8)) ring (
        .clk(clk), .rst(rst), .write(write), .row(r_row), .rows(rows), .index(index)
    );
    always @(posedge clk) begin
        if (rst) core <= 0;
        else if (r_ready) core <= core == ROWS16 ? 16'd0 : core + 16'd1;
    end

    // A row that hardware couldn't fill is marked below its top bit (sequencer.v); a packet that carries one is marked too, so
    // that a reader that knows nothing of marks refuses it.
    wire [ROWS-1:0] marks;
    genvar i;
    generate
        for (i = 0; i < ROWS; i = i + 1) begin : mark
            assign marks[i] = rows[(i + 1) * ROW_BYTES * 8 - 2];
        end
    endgenerate
`ifdef FAULT_MARK
    wire [7:0] flags = r_flags;
`else
    wire [7:0] flags = r_flags | {6'd0, |marks, 1'b0};
`endif

    wire [TRAILER*8-1:0] trailer = {
        VERSION, flags, ROWS16, ROW_BYTES16, index, r_seq, r_time, r_interface, r_link, r_wire_len
    };
    wire [HEAD*8-1:0] head;
    generate
        if (OUTER != 0) begin : outer
            assign head = {32'h024d5200, core, 48'h024d52ff0000, 16'h88b5, rows, trailer};
        end else begin : bare
            assign head = {rows, trailer};
        end
    endgenerate

    // From first byte on top, as numbers stand, to first byte lowest, as the bus has it.
    wire [(FULL+1)*1024-1:0] in_bus_order;
    generate
        for (i = 0; i < (FULL + 1) * BUS; i = i + 1) begin : each
            if (i < HEAD) assign in_bus_order[8*i +: 8] = head[8*(HEAD-1-i) +: 8];
            else assign in_bus_order[8*i +: 8] = 8'd0;
        end
    endgenerate

    // What each byte of the bus can be: a byte of each beat of history; then, in the first SPLIT bytes, the end of the
    // history or the beat before, and in the others the beat that comes in.
    reg [1023:0] carry_data;
    reg [127:0] carry_keep;
    wire [PLACE_BITS-1:0] upper_place = in_body ? FIRST[PLACE_BITS-1:0] : place;
    wire [1023:0] going;
    genvar k;
    generate
        for (i = 0; i < BUS; i = i + 1) begin : lanes
            wire [FULL*8+7:0] beats;
            for (k = 0; k <= FULL; k = k + 1) begin : of_history
                if (k < FULL || i < SPLIT) assign beats[8*k +: 8] = in_bus_order[1024*k + 8*i +: 8];
                else assign beats[8*k +: 8] = s_data[8*(i-SPLIT) +: 8];
            end
            if (i < SPLIT) begin : lower
                pick #(.CHOICES(FULL + 2), .AT_BITS(PLACE_BITS)) lane (
                    .clk(clk), .enable(advance), .at(place), .out(going[8*i +: 8]),
                    .from({carry_data[8*(BUS-SPLIT+i) +: 8], beats})
                );
            end else begin : upper
                pick #(.CHOICES(FULL + 1), .AT_BITS(PLACE_BITS)) lane (
                    .clk(clk), .enable(advance), .at(upper_place), .out(going[8*i +: 8]), .from(beats)
                );
            end
        end
    endgenerate
    assign m_data = going;

    wire [127:0] ahead_keep = in_tail ? carry_keep : {BUS{1'b1}};
    wire [127:0] coming_keep = in_tail ? 128'd0 : s_keep;
    wire [255:0] joined_keep = {coming_keep, ahead_keep} >> (BUS - SPLIT);

    // Bytes of the packet's last beat that have no room in the beat that goes out.
    wire [BUS:0] keep_and_none = {1'b0, s_keep};
`ifdef FAULT_TAIL
    wire overflows = 1'b0;
`else
    wire overflows = keep_and_none[BUS-SPLIT];
`endif

    always @(posedge clk) begin
        if (rst) begin
            place <= 0;
            in_tail <= 1'b0;
            m_valid <= 1'b0;
        end else if (advance) begin
            m_valid <= emits;
            if (emits) begin
                if (in_history) place <= place + 1'b1;
                else if (in_tail || (s_last && !overflows)) place <= 0;
                else place <= BODY[PLACE_BITS-1:0];
                in_tail <= !in_history && !in_tail && s_last && overflows;
            end
        end
        if (advance) begin
            m_keep <= in_history ? {BUS{1'b1}} : joined_keep[127:0];
            m_last <= in_tail || (!in_history && s_last && !overflows);
        end
        if (s_ready && s_valid) begin
            carry_data <= s_data;
            carry_keep <= s_keep;
        end
    end
endmodule

// One byte of several, and the register that it goes out from. A module of its own, so that synthesis does the bus's lanes
// once and not 128 times.
module pick #(
    parameter CHOICES = 2,
    parameter AT_BITS = 1
) (
    input  wire                 clk,
    input  wire                 enable,
    input  wire [CHOICES*8-1:0] from,
    input  wire [AT_BITS-1:0]   at,
    output reg  [7:0]           out
);
    always @(posedge clk) if (enable) out <= from[8*at +: 8];
endmodule
