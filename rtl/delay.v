// WIDTH bits, CYCLES cycles later.
module delay #(
    parameter WIDTH = 1,
    parameter CYCLES = 1
) (
    input  wire             clk,
    input  wire [WIDTH-1:0] in,
    output wire [WIDTH-1:0] out
);
    reg [WIDTH*CYCLES-1:0] line;
    assign out = line[WIDTH*CYCLES-1 -: WIDTH];

    generate
        if (CYCLES == 1) begin : one
            always @(posedge clk) line <= in;
        end else begin : many
            always @(posedge clk) line <= {line[WIDTH*(CYCLES-1)-1:0], in};
        end
    endgenerate
endmodule
